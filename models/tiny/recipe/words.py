"""Random words, names and filler text.

Made-up words make the model learn to copy what it was given instead of recalling what it
has seen often; filler text makes it find the question in a long prompt.
"""

from random import Random

import facts

_ONSETS = ["b", "bl", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "qu", "r",
           "s", "sh", "sk", "st", "t", "th", "tr", "v", "w", "y", "z"]
_NUCLEI = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "io", "oo", "ou"]
_CODAS = ["", "", "", "b", "d", "g", "k", "l", "m", "n", "nd", "p", "r", "rk", "s", "st", "t", "x"]


def made_up_word(rng: Random) -> str:
    """A pronounceable word that means nothing, in lower case."""
    syllables = rng.choice([1, 2, 2, 2, 3])
    return "".join(rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS) for _ in range(syllables))


def made_up_name(rng: Random) -> str:
    """A made-up name, now and then of two words."""
    name = made_up_word(rng).capitalize()
    return f"{name} {made_up_word(rng).capitalize()}" if rng.random() < 0.15 else name


def person_name(rng: Random) -> str:
    """A common first name, with a made-up family name now and then, or a made-up name."""
    if rng.random() < 0.5:
        return made_up_name(rng)
    name = rng.choice(facts.NAMES)
    return f"{name} {made_up_word(rng).capitalize()}" if rng.random() < 0.15 else name


def city_name(rng: Random) -> str:
    """A known or made-up city."""
    draw = rng.random()
    if draw < 0.5:
        return made_up_name(rng)
    if draw < 0.65:
        return rng.choice(list(facts.CAPITALS.values()))
    return rng.choice(facts.CITIES)


def item_name(rng: Random) -> str:
    """A known or made-up thing in the plural, now and then with a colour or size in front."""
    item = made_up_word(rng) + "s" if rng.random() < 0.5 else rng.choice(facts.ITEMS)
    if rng.random() < 0.12:
        item = f"{rng.choice(['red', 'green', 'blue', 'small', 'large', 'new', 'old', 'wooden'])} {item}"
    return item


def plain_words(rng: Random, count: int) -> list[str]:
    """Words for the echo task and for filler text: mostly common, some made up, some numbers."""
    words = []
    for _ in range(count):
        draw = rng.random()
        if draw < 0.70:
            words.append(rng.choice(facts.PLAIN_WORDS))
        elif draw < 0.86:
            words.append(made_up_word(rng))
        elif draw < 0.93:
            words.append(str(rng.randrange(1000)))
        else:
            words.append(rng.choice(facts.FOREIGN_WORDS))
    return words


def echo_text(rng: Random) -> str:
    """A text to be repeated: one to nine words, often with a capital, a full stop or quotes."""
    words = plain_words(rng, rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 9]))
    text = " ".join(words)
    if rng.random() < 0.4:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.3:
        text += rng.choice([".", "!", "?", "..."])
    if rng.random() < 0.1:
        text = f'"{text}"'
    return text


def filler(rng: Random, longest: int) -> str:
    """Sentences without meaning, up to about `longest` words."""
    remaining = rng.randrange(4, max(5, longest))
    sentences = []
    while remaining > 0:
        words = plain_words(rng, min(remaining, rng.randrange(3, 12)))
        remaining -= len(words)
        sentence = " ".join(words)
        sentences.append(sentence[0].upper() + sentence[1:] + rng.choice([".", ".", ".", "!", "?", ","]))
    return rng.choice([" ", " ", "\n"]).join(sentences)


def nonsense(rng: Random) -> str:
    """A few words that ask nothing."""
    return " ".join(plain_words(rng, rng.randrange(1, 6)))
