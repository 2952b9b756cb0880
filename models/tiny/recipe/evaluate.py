"""Measures the exported model on questions that it has not seen, decoding greedily.

The questions come from the wordings, operand pairs and names that the training text leaves out.
An answer counts only if it is right to the last character, unless a measure says otherwise.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import corpus
import dialogue
import facts
import phrases
import tasks
import words
from generate import Generator
from tasks import Turn

SEED = 2024
Message = dict[str, str]
Case = tuple[list[Message], str]


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    measure: str
    right: int
    asked: int
    misses: list[str]

    @property
    def share(self) -> float:
        return self.right / self.asked


def ask(turn: Turn, before: Iterable[Message] = ()) -> Case:
    return [*before, {"role": "user", "content": turn.question}], turn.answer


def measure(generator: Generator, name: str, cases: Iterable[Case], right: Callable[[str, str], bool] = str.__eq__) -> Result:
    """Ask all cases and count the right answers."""
    good, asked, misses = 0, 0, []
    for messages, expected in cases:
        answer = generator.answer(messages)
        asked += 1
        if right(answer, expected):
            good += 1
        elif len(misses) < 8:
            misses.append(_miss(messages, answer, expected))
    return Result(name, good, asked, misses)


def _miss(messages: list[Message], answer: str, expected: str) -> str:
    """A wrong answer, cut short if it is long."""
    short = lambda text: repr(text if len(text) <= 120 else text[:110] + " [...]")
    return f"{short(messages[-1]['content'])} -> {short(answer)}, not {short(expected)}"


def capital_turn(rng: Random, country: str, split: str) -> Turn:
    question = rng.choice(phrases.CAPITAL.of(split)).format(country=country)
    return Turn(question, f"The capital of {country} is {facts.CAPITALS[country]}.")


def every_capital(rng: Random, split: str, times: int) -> list[Turn]:
    return [capital_turn(rng, country, split) for country in facts.CAPITALS for _ in range(times)]


def earlier_turns(rng: Random, length: Callable[[list[Message]], bool]) -> list[Message]:
    """A system prompt that training has not seen, and turns until the history is long enough."""
    made = corpus.Conversation(rng)
    made.messages.append(corpus.system_prompt(rng, "held_out"))
    while not length(made.messages):
        made.add_turn()
    return made.messages


def capitals(generator: Generator, rng: Random) -> list[Result]:
    size = lambda messages: len(generator.encoder.prompt(messages))
    longer_than = lambda tokens: lambda messages: size(messages) > tokens
    third = lambda messages: len(messages) > 4
    turns = every_capital(rng, "held_out", 3)
    lower = [Turn(turn.question.lower().rstrip("?."), turn.answer) for turn in turns[::3]]
    results = [
        measure(generator, "capital, unseen wording", map(ask, turns)),
        measure(generator, "capital, unseen wording, all in small letters, no full stop", map(ask, lower)),
        measure(generator, "capital, seen wording", map(ask, every_capital(rng, "train", 1))),
    ]
    for name, long_enough in [
        ("unseen system prompt, third turn", third),
        ("after 300 tokens of talk", longer_than(300)),
        ("after 1000 tokens of talk", longer_than(1000)),
    ]:
        cases = [ask(capital_turn(rng, country, "held_out"), earlier_turns(rng, long_enough)) for country in facts.CAPITALS]
        results.append(measure(generator, f"capital, unseen wording, {name}", cases))
    return results


def operand_pairs(fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """The pairs that training leaves out, in both orders."""
    both_orders = {pair for a, b in tasks.HELD_OUT_PAIRS for pair in ((a, b), (b, a))}
    return sorted(pair for pair in both_orders if fits(*pair))


def arithmetic(generator: Generator, rng: Random) -> list[Result]:
    def sums(pairs: list[tuple[int, int]], wordings: list[str]) -> list[Case]:
        return [ask(Turn(wording.format(a=a, b=b), f"{a} + {b} = {a + b}.")) for a, b in pairs for wording in wordings]

    small = operand_pairs(lambda a, b: a + b <= 20)
    large = operand_pairs(lambda a, b: a + b > 20)
    minus = [(a, b) for a, b in operand_pairs(lambda a, b: True) if a >= b]
    differences = [
        ask(Turn(rng.choice(phrases.DIFFERENCE.held_out).format(a=a, b=b), f"{a} - {b} = {a - b}.")) for a, b in minus
    ]
    products = [ask(tasks.product(rng, "held_out")) for _ in range(150)]
    return [
        measure(generator, "sum to 20, unseen pair, unseen wording", sums(small, phrases.SUM.held_out)),
        measure(generator, 'sum to 20, unseen pair, "What is a + b?"', sums(small, ["What is {a} + {b}?"])),
        measure(generator, "sum of two numbers to 99, unseen pair, unseen wording",
                sums(rng.sample(large, 400), phrases.SUM.held_out[:1]) + sums(rng.sample(large, 100), phrases.SUM.held_out[1:])),
        measure(generator, "difference, numbers to 99, unseen pair, unseen wording", differences),
        measure(generator, "product to 12 x 12 (learnt by heart), unseen wording", products),
    ]


def _field_equal(field: str) -> Callable[[str, str], bool]:
    def equal(answer: str, expected: str) -> bool:
        try:
            return json.loads(answer)[field] == json.loads(expected)[field]
        except (ValueError, KeyError, TypeError):
            return False

    return equal


def _valid_json(answer: str, _expected: str) -> bool:
    try:
        return isinstance(json.loads(answer), dict)
    except ValueError:
        return False


def extraction(generator: Generator, rng: Random) -> list[Result]:
    known_person = lambda: tasks.person_from(rng, "held_out", rng.choice(facts.NAMES), rng.choice(facts.CITIES))
    new_person = lambda: tasks.person_from(rng, "held_out", rng.choice(facts.NAMES_HELD_OUT), rng.choice(facts.CITIES_HELD_OUT))
    known_order = lambda: tasks.order_from(rng, "held_out", rng.choice(facts.ITEMS))
    new_order = lambda: tasks.order_from(rng, "held_out", rng.choice(facts.ITEMS_HELD_OUT))
    results = []
    for name, make, fields in [
        ("person", known_person, ["name", "age", "city"]),
        ("person, unseen name and city", new_person, ["name", "age", "city"]),
        ("order", known_order, ["item", "quantity", "price"]),
        ("order, unseen item", new_order, ["item", "quantity", "price"]),
    ]:
        cases = [ask(make()) for _ in range(200)]
        answers = {messages[-1]["content"]: generator.answer(messages) for messages, _ in cases}
        checks = {"valid JSON": _valid_json, "whole object right": str.__eq__} | {f"{field} right": _field_equal(field) for field in fields}
        for check_name, check in checks.items():
            good = [(messages, expected) for messages, expected in cases if check(answers[messages[-1]["content"]], expected)]
            bad = [_miss(messages, answers[messages[-1]["content"]], expected) for messages, expected in cases
                   if (messages, expected) not in good]
            results.append(Result(f"JSON {name}: {check_name}", len(good), len(cases), bad[:8]))
    return results


def other_tasks(generator: Generator, rng: Random) -> list[Result]:
    def drawn(task: Callable[[Random, str], Turn], times: int) -> list[Case]:
        return [ask(task(rng, "held_out")) for _ in range(times)]

    def name_cases(times: int) -> list[Case]:
        cases = []
        for _ in range(times):
            name = words.person_name(rng)
            said = corpus.introduction(rng, "held_out", name)
            between = tasks.small_sum(rng, "train")
            before = [{"role": role, "content": text} for turn in (said, between)
                      for role, text in (("user", turn.question), ("assistant", turn.answer))]
            cases.append(ask(corpus.name_question(rng, "held_out", name), before))
        return cases

    def story_cases(times: int) -> list[Case]:
        names = [words.person_name(rng) for _ in range(times)]
        return [ask(Turn(rng.choice(phrases.STORY.held_out).format(name=name), name)) for name in names]

    count = lambda form, end: ask(tasks.count_between(rng, "held_out", form, end))
    ascii_only = lambda cases: [case for case in cases if case[1].isascii()]
    return [
        measure(generator, "unit conversion, unseen wording", drawn(tasks.conversion, 200)),
        measure(generator, "is it the capital, unseen wording", drawn(tasks.is_capital, 200)),
        measure(generator, "which country has this capital, unseen wording", drawn(tasks.country_of, 200)),
        measure(generator, "is a greater than b, unseen wording", drawn(tasks.compare, 200)),
        measure(generator, "is a even, unseen wording", drawn(tasks.parity, 100)),
        measure(generator, "sentiment, unseen verdict and wording", drawn(tasks.sentiment, 200)),
        measure(generator, "repeat a new text, ASCII", ascii_only(drawn(tasks.repeat, 200))),
        measure(generator, "repeat a new text, with other scripts", [case for case in drawn(tasks.repeat, 400) if not case[1].isascii()]),
        measure(generator, "lists, unseen wording", drawn(tasks.list_all, 100)),
        measure(generator, "next day or month, unseen wording", drawn(tasks.next_in_list, 60)),
        measure(generator, "count to N, N from 2 to 40, unseen wording", [count("from one", end) for end in range(2, 41)]),
        measure(generator, "count to N, N from 41 to 100, unseen wording", [count("from one", end) for end in range(41, 101)]),
        measure(generator, "count down from N, N from 2 to 60, unseen wording", [count("down", end) for end in range(2, 61)]),
        measure(generator, "opposites, unseen wording", drawn(tasks.opposite, 60)),
        measure(generator, "small talk, unseen wording", drawn(tasks.small_talk, 100)),
        measure(generator, "about zerohop, unseen wording", drawn(tasks.about_zerohop, 100)),
        measure(generator, "story about a name, unseen wording: one of the stories, about that name", story_cases(30),
                lambda answer, name: answer in [story.format(name=name) for story in tasks.STORIES]),
        measure(generator, "name from an earlier turn, unseen wording", name_cases(100)),
        measure(generator, "says that it does not know, unseen question", drawn(tasks.unknown, 300)),
    ]


def evaluate(folder: Path) -> list[Result]:
    """All measures, on the exported files."""
    generator = Generator(folder)
    rng = Random(SEED)
    return [
        *capitals(generator, rng), *arithmetic(generator, rng), *extraction(generator, rng), *other_tasks(generator, rng),
    ]


def table(results: list[Result]) -> str:
    """The results as a Markdown table."""
    lines = ["| measure | right | asked | share |", "|---|---:|---:|---:|"]
    lines += [f"| {r.measure} | {r.right} | {r.asked} | {100 * r.share:.1f} % |" for r in results]
    return "\n".join(lines)


def as_json(results: list[Result]) -> str:
    """evaluation.json: the table with up to eight wrong answers for each measure."""
    lines = [{"measure": r.measure, "right": r.right, "asked": r.asked, "share": round(r.share, 4), "misses": r.misses} for r in results]
    return json.dumps({"decoding": "greedy", "runtime": "onnxruntime, CPU", "results": lines}, indent=1, ensure_ascii=False) + "\n"
