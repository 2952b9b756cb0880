"""Makes the whole model from nothing:  python make.py --out FOLDER

Trains the tokenizer and the model on generated text, writes the int8 graph, checks the engine's
contract, measures the result on unseen questions and puts the table into README.md.
"""

import argparse
import sys
import time
from pathlib import Path

import contract
import corpus
import evaluate
from export import export
from model import Shape
from tokens import train_tokenizer
from train import Plan, train

TOKENIZER_SEED = 5
TABLE_BEGIN, TABLE_END = "<!-- accuracy: written by the recipe -->", "<!-- end of accuracy -->"


def make(out: Path) -> None:
    """Write tokenizer.json, model.onnx, config.json and evaluation.json."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    tokenizer_file = out / "tokenizer.json"
    train_tokenizer(corpus.tokenizer_texts(TOKENIZER_SEED)).save(str(tokenizer_file))
    shape = Shape()
    weights = train(shape, Plan(), tokenizer_file)
    export(shape, weights, out)
    contract.check(out)
    report(out)
    print(f"made {out} in {time.monotonic() - started:.0f} s")


def report(out: Path) -> None:
    """Measure, print the table, and write it to evaluation.json and README.md."""
    results = evaluate.evaluate(out)
    table = evaluate.table(results)
    print(table)
    (out / "evaluation.json").write_text(evaluate.as_json(results))
    readme = out / "README.md"
    if readme.exists():
        before, rest = readme.read_text().split(TABLE_BEGIN)
        after = rest.split(TABLE_END)[1]
        readme.write_text(f"{before}{TABLE_BEGIN}\n{table}\n{TABLE_END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent, help="folder of the model")
    parser.add_argument("--only-evaluate", action="store_true", help="measure the files that are there")
    arguments = parser.parse_args()
    if arguments.only_evaluate:
        contract.check(arguments.out)
        report(arguments.out)
    else:
        make(arguments.out)


if __name__ == "__main__":
    sys.exit(main())
