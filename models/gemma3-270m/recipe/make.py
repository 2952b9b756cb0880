"""Makes a model directory of Gemma 3 270M from its published weights:  python make.py --source FOLDER --out FOLDER

Fetches and checks the weights, writes tokenizer, graph, configuration and template, and checks what it wrote. It never
changes a directory that it did not make. Invariant: the directory appears under its name whole and checked, by one rename.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import balance
import check
import export
import quality
import vocabulary
from runner import Runner
from source import TERMS, Source, fetch

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE.parent / "chat_template.jinja"
STAMP = "recipe.json"
NEEDED_BYTES = 2_400_000_000
NEEDED_TO_COMPARE = 1_300_000_000
NOTICE = "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms\n"


def recipe(bits: int, context: int) -> dict:
    """What the result depends on."""
    files = sorted([*HERE.glob("*.py"), *HERE.glob("*.txt"), TEMPLATE])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return {"recipe": digest.hexdigest(), "bits": bits, "context": context}


def is_made(out: Path, wanted: dict) -> bool:
    """Whether `out` has exactly what this recipe would make. A directory of another origin stops it."""
    if not out.exists():
        return False
    try:
        stamp = json.loads((out / STAMP).read_text())
        sizes = stamp.pop("sizes")
    except (OSError, ValueError, KeyError):
        raise SystemExit(f"error: {out} exists, and this recipe did not make it: remove it or give another --out") from None
    whole = all((out / name).exists() and (out / name).stat().st_size == size for name, size in sizes.items())
    return whole and stamp == wanted


def make(source_folder: Path, out: Path, bits: int, context: int) -> None:
    """Write the directory, unless it is there already."""
    wanted, started = recipe(bits, context), time.monotonic()
    if is_made(out, wanted):
        print(f"{out} is made already")
        return
    _room(out, NEEDED_BYTES)
    source = Source(fetch(source_folder))
    shape = export.Shape.of(source, context)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{out.name}-", dir=out.parent) as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        vocabulary.write(source, folder / "tokenizer.json")
        export.export(source if bits == 32 else balanced(source, shape, folder, Path(scratch)), shape, bits, folder)
        shutil.copy(TEMPLATE, folder)
        shutil.copy(source_folder / TERMS, folder)
        (folder / "NOTICE").write_text(NOTICE)
        check.check(folder)
        sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
        (folder / STAMP).write_text(json.dumps(wanted | {"sizes": sizes}, indent=1) + "\n")
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    print(f"made {out}: {sum(sizes.values()) / 1e6:.0f} MB in {time.monotonic() - started:.0f} s")


def balanced(source: Source, shape: export.Shape, made: Path, scratch: Path) -> balance.Balanced:
    """The source with its matrices balanced, by runs in full precision with the tokenizer that is made already."""
    exact = scratch / "exact"
    exact.mkdir()
    export.export(source, shape, 32, exact, balance.measured(shape.layers))
    shutil.copy(made / "tokenizer.json", exact)
    greatest = balance.measure(Runner(exact))
    shutil.rmtree(exact)
    print("matrices: balanced by the channels of their inputs", flush=True)
    return balance.Balanced(source, greatest, shape.layers)


def compare(source_folder: Path, out: Path, context: int) -> None:
    """Print how much the stored bits change the model."""
    _room(out, NEEDED_TO_COMPARE)
    source = Source(fetch(source_folder))
    with tempfile.TemporaryDirectory(prefix=f"{out.name}-exact-", dir=out.parent) as scratch:
        exact = Path(scratch)
        export.export(source, export.Shape.of(source, context), 32, exact)
        shutil.copy(out / "tokenizer.json", exact)
        found = quality.compare(exact, out)
    print(f"against 32 bits, over {found.positions} positions: divergence {found.divergence:.4f} nats, the same first choice at "
          f"{100 * found.same_first:.1f} %, {found.greedy} of {len(quality.PROMPTS)} greedy continuations of {quality.CONTINUED} tokens the same")


def _room(out: Path, needed: int) -> None:
    place = next(folder for folder in [out, *out.parents] if folder.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise SystemExit(f"error: {place} has {free / 1e9:.1f} GB free, and this needs {needed / 1e9:.1f} GB: free some, or give another --out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="folder for the published weights")
    parser.add_argument("--out", type=Path, required=True, help="the model directory")
    parser.add_argument("--bits", type=int, choices=export.BITS, default=8, help="bits of a stored weight (default 8)")
    parser.add_argument("--context", type=int, default=4096, help="positions, at most 32768 (default 4096)")
    parser.add_argument("--quality", action="store_true", help="also compare with 32 bits")
    arguments = parser.parse_args()
    source, out = arguments.source.resolve(), arguments.out.resolve()
    try:
        make(source, out, arguments.bits, arguments.context)
        if arguments.quality:
            compare(source, out, arguments.context)
    except OSError as error:
        raise SystemExit(f"error: {error.filename or out}: {error.strerror or error}") from None


if __name__ == "__main__":
    sys.exit(main())
