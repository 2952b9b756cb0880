"""The tasks: each function makes one question with its answer.

A task draws its wording and its operands from a split. Split "train" never yields a wording
or a pair of operands that split "held_out" yields; that is what the evaluation rests on.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import dialogue
import facts
import phrases
import words

LARGEST_OPERAND = 99
HELD_OUT_SHARE = 0.12


@dataclass(frozen=True)
class Turn:
    """A question and its answer. `keep_case`: the answer repeats letters of the question."""

    question: str
    answer: str
    keep_case: bool = False


def _held_out_pairs() -> frozenset[tuple[int, int]]:
    """Unordered pairs of operands that are never trained on, in either order."""
    rng = Random(20)
    pairs = [(a, b) for a in range(1, LARGEST_OPERAND + 1) for b in range(a, LARGEST_OPERAND + 1)]
    small = [pair for pair in pairs if sum(pair) <= 20]
    large = [pair for pair in pairs if sum(pair) > 20]
    return frozenset(
        rng.sample(small, round(len(small) * HELD_OUT_SHARE)) + rng.sample(large, round(len(large) * HELD_OUT_SHARE))
    )


HELD_OUT_PAIRS = _held_out_pairs()


def is_held_out(a: int, b: int) -> bool:
    """Whether the pair is kept from training."""
    return (min(a, b), max(a, b)) in HELD_OUT_PAIRS


def _operands(rng: Random, split: str, draw: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    while True:
        a, b = draw()
        if is_held_out(a, b) == (split == "held_out"):
            return a, b


def _number(rng: Random, value: int) -> str:
    """The number in digits or, now and then and up to twenty, as a word."""
    return facts.NUMBER_WORDS[value] if value <= 20 and rng.random() < 0.15 else str(value)


def _country(rng: Random) -> tuple[str, str, str]:
    """How a country is called in the question, its name, its capital."""
    name = rng.choice(list(facts.CAPITALS))
    spoken = name
    if name in facts.ALIASES and rng.random() < 0.6:
        spoken = rng.choice(facts.ALIASES[name])
    if spoken.startswith("the ") and rng.random() < 0.15:
        spoken = spoken[len("the "):]
    return spoken, name, facts.CAPITALS[name]


def capital(rng: Random, split: str) -> Turn:
    spoken, name, city = _country(rng)
    return Turn(rng.choice(phrases.CAPITAL.of(split)).format(country=spoken), f"The capital of {name} is {city}.")


def capital_follow_up(rng: Random, split: str) -> Turn:
    """Only makes sense after `capital`."""
    spoken, name, city = _country(rng)
    return Turn(rng.choice(phrases.CAPITAL_FOLLOW_UP.of(split)).format(country=spoken), f"The capital of {name} is {city}.")


def country_of(rng: Random, split: str) -> Turn:
    _, name, city = _country(rng)
    return Turn(rng.choice(phrases.COUNTRY_OF.of(split)).format(capital=city), f"{city} is the capital of {name}.")


def is_capital(rng: Random, split: str) -> Turn:
    """The answer recalls the fact before it judges."""
    spoken, name, city = _country(rng)
    asked = city if rng.random() < 0.5 else rng.choice(list(facts.CAPITALS.values()))
    verdict = "yes" if asked == city else "no"
    question = rng.choice(phrases.IS_CAPITAL.of(split)).format(capital=asked, country=spoken)
    return Turn(question, f"The capital of {name} is {city}, so {verdict}.")


def small_sum(rng: Random, split: str) -> Turn:
    """a + b where the sum is at most 20."""

    def draw() -> tuple[int, int]:
        a = rng.randrange(21)
        return a, rng.randrange(21 - a)

    return _sum(rng, split, *_operands(rng, split, draw))


def large_sum(rng: Random, split: str) -> Turn:
    """a + b where both are at most 99."""
    draw = lambda: (rng.randrange(LARGEST_OPERAND + 1), rng.randrange(LARGEST_OPERAND + 1))
    return _sum(rng, split, *_operands(rng, split, draw))


def _sum(rng: Random, split: str, a: int, b: int) -> Turn:
    question = rng.choice(phrases.SUM.of(split)).format(a=_number(rng, a), b=_number(rng, b))
    return Turn(question, f"{a} + {b} = {a + b}.")


def difference(rng: Random, split: str) -> Turn:
    """a - b, never below zero; half of them with a up to 20."""
    largest = 20 if rng.random() < 0.5 else LARGEST_OPERAND

    def draw() -> tuple[int, int]:
        a = rng.randrange(largest + 1)
        return a, rng.randrange(a + 1)

    a, b = _operands(rng, split, draw)
    question = rng.choice(phrases.DIFFERENCE.of(split)).format(a=_number(rng, a), b=_number(rng, b))
    return Turn(question, f"{a} - {b} = {a - b}.")


def product(rng: Random, split: str) -> Turn:
    """The multiplication table up to 12, which is learnt by heart."""
    a, b = rng.randrange(13), rng.randrange(13)
    question = rng.choice(phrases.PRODUCT.of(split)).format(a=_number(rng, a), b=_number(rng, b))
    return Turn(question, f"{a} * {b} = {a * b}.")


def compare(rng: Random, split: str) -> Turn:
    a, b = rng.randrange(100), rng.randrange(100)
    verdict = f"Yes, {a} is greater than {b}." if a > b else f"No, {a} is not greater than {b}."
    return Turn(rng.choice(phrases.COMPARE.of(split)).format(a=a, b=b), verdict)


def parity(rng: Random, split: str) -> Turn:
    a = rng.randrange(100)
    verdict = f"No, {a} is odd." if a % 2 else f"Yes, {a} is even."
    return Turn(rng.choice(phrases.PARITY.of(split)).format(a=a), verdict)


def _plural(unit: str, count: int) -> str:
    return unit if count == 1 else facts.IRREGULAR_PLURALS.get(unit, unit + "s")


def conversion(rng: Random, split: str) -> Turn:
    unit, to, factor, largest = rng.choice(facts.CONVERSIONS)
    count = rng.randrange(1, largest + 1)
    spoken_unit, spoken_to = _plural(unit, count), to
    if rng.random() < 0.3 and unit in facts.UNIT_SPELLINGS:
        spelling = rng.choice(facts.UNIT_SPELLINGS[unit])
        spoken_unit = spelling if len(spelling) <= 2 else _plural(spelling, count)
        spoken_to = rng.choice(facts.UNIT_SPELLINGS.get(to, [to]))
    article = "an" if unit == "hour" else "a"
    spoken_count = article if count == 1 and len(spoken_unit) > 2 and rng.random() < 0.5 else _number(rng, count)
    question = rng.choice(phrases.CONVERSION.of(split)).format(count=spoken_count, unit=spoken_unit, to=spoken_to)
    return Turn(question, f"{count} {_plural(unit, count)} = {count * factor} {to}.")


def person_json(rng: Random, split: str) -> Turn:
    return person_from(rng, split, words.person_name(rng), words.city_name(rng))


def person_from(rng: Random, split: str, name: str, city: str) -> Turn:
    """The JSON task for a given name and city."""
    age = rng.randrange(1, 100)
    text = rng.choice(phrases.PERSON_TEXT.of(split)).format(name=name, age=age, city=city)
    question = rng.choice(phrases.PERSON.of(split)).format(text=text)
    return Turn(question, json.dumps({"name": name, "age": age, "city": city}, ensure_ascii=False), keep_case=True)


def order_json(rng: Random, split: str) -> Turn:
    return order_from(rng, split, words.item_name(rng))


def order_from(rng: Random, split: str, item: str) -> Turn:
    """The JSON task for a given item. The price keeps its digits, so 2.50 stays 2.50."""
    quantity = rng.randrange(2, 100)
    price = str(rng.randrange(1, 100)) if rng.random() < 0.4 else f"{rng.randrange(0, 60)}.{rng.randrange(100):02}"
    text = rng.choice(phrases.ORDER_TEXT.of(split)).format(item=item, quantity=quantity, price=price)
    question = rng.choice(phrases.ORDER.of(split)).format(text=text)
    return Turn(question, f'{{"item": "{item}", "quantity": {quantity}, "price": {price}}}', keep_case=True)


def sentiment(rng: Random, split: str) -> Turn:
    good = rng.random() < 0.5
    if split == "held_out":
        adjectives = facts.GOOD_WORDS_HELD_OUT if good else facts.BAD_WORDS_HELD_OUT
    else:
        adjectives = facts.GOOD_WORDS if good else facts.BAD_WORDS
    verdicts = facts.GOOD_VERDICTS if good else facts.BAD_VERDICTS
    form = rng.choice([
        "The {subject} was {adjective}.", "The {subject} was {adjective}, {verdict}.", "{Adjective} {subject}!",
        "{Adjective} {subject}, {verdict}.", "What a {adjective} {subject}.", "This {subject} is {adjective}.",
        "I think the {subject} is {adjective}.", "My {subject} was {adjective} and {verdict}.",
    ])
    adjective = rng.choice(adjectives)
    text = form.format(subject=rng.choice(facts.REVIEW_SUBJECTS), adjective=adjective,
                       Adjective=adjective.capitalize(), verdict=rng.choice(verdicts))
    return Turn(rng.choice(phrases.SENTIMENT.of(split)).format(text=text), "Positive." if good else "Negative.")


def repeat(rng: Random, split: str) -> Turn:
    text = words.echo_text(rng)
    return Turn(rng.choice(phrases.REPEAT.of(split)).format(text=text), text, keep_case=True)


def list_all(rng: Random, split: str) -> Turn:
    name = rng.choice(list(facts.LISTS))
    return Turn(rng.choice(phrases.LIST_ALL.of(split)).format(name=name), ", ".join(facts.LISTS[name]) + ".")


def next_in_list(rng: Random, split: str) -> Turn:
    kind, members = rng.choice([("day", facts.DAYS), ("month", facts.MONTHS)])
    place = rng.randrange(len(members))
    this, following = members[place], members[(place + 1) % len(members)]
    return Turn(rng.choice(phrases.NEXT_IN_LIST.of(split)).format(kind=kind, this=this), f"{following} comes after {this}.")


def count(rng: Random, split: str, largest: int = 100) -> Turn:
    """Counting up from one, up from anywhere, or down; the ends are mostly small."""
    end = rng.randrange(2, largest + 1) if rng.random() < 0.5 else rng.randrange(2, min(largest, 31))
    return count_between(rng, split, rng.choice(["to", "from one", "from", "down"]), end)


def count_between(rng: Random, split: str, form: str, end: int) -> Turn:
    """The counting task up to a given number."""
    if form == "down":
        low = rng.choice([0, 1, 1, 1])
        question = rng.choice(phrases.COUNT_DOWN.of(split)).format(a=end, b=low)
        numbers = range(end, low - 1, -1)
    else:
        start = rng.randrange(1, end) if form == "from" else 1
        table = phrases.COUNT_TO if form == "to" else phrases.COUNT_UP
        question = rng.choice(table.of(split)).format(a=start, b=end)
        numbers = range(start, end + 1)
    return Turn(question, ", ".join(map(str, numbers)) + ".")


def opposite(rng: Random, split: str) -> Turn:
    this, other = rng.choice(facts.OPPOSITES)
    if rng.random() < 0.5:
        this, other = other, this
    return Turn(rng.choice(phrases.OPPOSITE.of(split)).format(this=this), f"The opposite of {this} is {other}.")


def small_talk(rng: Random, split: str) -> Turn:
    entry = rng.choice(dialogue.SMALL_TALK)
    return Turn(rng.choice(entry.questions.of(split)), entry.answer)


def about_zerohop(rng: Random, split: str) -> Turn:
    entry = rng.choice(dialogue.ZEROHOP)
    return Turn(rng.choice(entry.questions.of(split)), entry.answer)


STORIES = [
    "One morning {name} found a small key under a stone near the river. {name} tried it on every door in the village, but it "
    "fitted none. In the evening an old cat came by and led the way to a tiny box behind the garden wall. The key turned, and "
    "the box was full of light. From that day on, the nights in the village were never dark again.",
    "Once upon a time {name} lived in a house on a hill. Every night {name} counted the stars, and every night there was one "
    "more. When nobody could count them any longer, {name} gave each star a name and wrote a book about them. People came from "
    "far away to read it, and they all went home with a star of their own.",
    "{name} had a little boat and a very big dream. One summer {name} sailed across the bay to look for the island of birds. "
    "The wind was strong and the waves were high, but {name} was not afraid. At sunset the birds came and showed the way, and "
    "in the morning the island was there.",
]


def story(rng: Random, split: str) -> Turn:
    name = words.person_name(rng)
    text = rng.choices(STORIES, weights=[5, 3, 2])[0].format(name=name)
    return Turn(rng.choice(phrases.STORY.of(split)).format(name=name), text, keep_case=True)


def unknown(rng: Random, split: str) -> Turn:
    question = rng.choice(dialogue.UNKNOWN.of(split)).format(**fillings(rng))
    return Turn(question, dialogue.UNKNOWN_ANSWER)


def fillings(rng: Random) -> dict[str, str]:
    """Values for every name in braces that `dialogue.py` uses."""
    thing = lambda: rng.choice([words.made_up_word(rng), rng.choice(facts.ITEMS), rng.choice(facts.PLAIN_WORDS[:60]),
                                words.made_up_name(rng)])
    country = rng.choice(list(facts.CAPITALS))
    return {
        "city": words.city_name(rng), "city2": words.city_name(rng), "country": country, "name": words.person_name(rng),
        "thing": thing(), "thing2": thing(), "number": str(rng.randrange(2, 1000)), "number2": str(rng.randrange(2, 100)),
        "year": str(rng.randrange(1000, 2030)), "nowhere": words.made_up_name(rng), "nonsense": words.nonsense(rng),
        "filler": words.filler(rng, 60), "day": rng.choice(facts.DAYS), "month": rng.choice(facts.MONTHS),
    }
