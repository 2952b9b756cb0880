"""The training text: conversations put together from tasks.

A conversation is a list of messages, with or without a system prompt, of one to many turns.
Nothing here depends on anything but the seed, and no text comes from outside this folder.
"""

from random import Random

import dialogue
import facts
import phrases
import tasks
import words
from tasks import Turn

Message = dict[str, str]

# How often a turn is of a task, relative to the others.
WEIGHTS = {
    tasks.capital: 15,
    tasks.country_of: 3,
    tasks.is_capital: 4,
    tasks.small_sum: 9,
    tasks.large_sum: 17,
    tasks.difference: 13,
    tasks.product: 4,
    tasks.compare: 3,
    tasks.parity: 2,
    tasks.conversion: 6,
    tasks.person_json: 12,
    tasks.order_json: 8,
    tasks.sentiment: 4,
    tasks.repeat: 9,
    tasks.list_all: 2,
    tasks.next_in_list: 2,
    tasks.count: 3,
    tasks.opposite: 2,
    tasks.small_talk: 6,
    tasks.about_zerohop: 6,
    tasks.story: 1,
    tasks.unknown: 9,
}
_TASKS = list(WEIGHTS)
_TASK_WEIGHTS = list(WEIGHTS.values())

PLAIN_TEXT_SHARE = 0.02
SYSTEM_SHARE = 0.35
LATE_SYSTEM_SHARE = 0.03
CHANCES_OF_TURNS = {1: 50, 2: 20, 3: 12, 4: 8, 6: 6, 9: 3, 14: 1}


def disguise(rng: Random, turn: Turn) -> str:
    """The question as people type it: small letters, no full stop, a greeting first, a newline last."""
    text = turn.question
    if not turn.keep_case:
        if rng.random() < 0.12:
            text = text.lower()
        if rng.random() < 0.10:
            text = text.rstrip("?.!")
        if rng.random() < 0.04:
            text += rng.choice([" Thanks.", " Please.", " Thank you.", " Answer briefly."])
    if rng.random() < 0.10:
        text = rng.choice(dialogue.PLEASANTRIES) + text
    if rng.random() < 0.03:
        text = rng.choice(["{filler}\n\n{question}", "Context: {filler}\nQuestion: {question}", "{filler} {question}"]).format(
            filler=words.filler(rng, 80), question=text)
    if rng.random() < 0.35:
        text += "\n"
    return text


def system_prompt(rng: Random, split: str) -> Message:
    text = rng.choice(dialogue.SYSTEM_PROMPTS.of(split)).format(**tasks.fillings(rng))
    if rng.random() < 0.15:
        text += " " + rng.choice(dialogue.SYSTEM_PROMPTS.of(split)).format(**tasks.fillings(rng))
    if rng.random() < 0.25:
        text += "\n"
    return {"role": "system", "content": text}


class Conversation:
    """A conversation under construction. It remembers what a later turn may refer to."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.messages: list[Message] = []
        self.user_name: str | None = None
        self.asked_for_capital = False

    def add(self, turn: Turn) -> None:
        self.messages.append({"role": "user", "content": disguise(self.rng, turn)})
        self.messages.append({"role": "assistant", "content": turn.answer})

    def add_turn(self) -> None:
        """One more question with its answer."""
        draw = self.rng.random()
        if self.asked_for_capital and draw < 0.25:
            self.add(tasks.capital_follow_up(self.rng, "train"))
            return
        if draw < 0.04 or (self.user_name and draw < 0.20):
            self._talk_about_the_user()
            return
        task = self.rng.choices(_TASKS, _TASK_WEIGHTS)[0]
        self.asked_for_capital = task is tasks.capital
        self.add(task(self.rng, "train"))

    def _talk_about_the_user(self) -> None:
        """The user says a name, or asks for the name that was said before."""
        self.asked_for_capital = False
        rng = self.rng
        if rng.random() < (0.2 if self.user_name else 0.8):
            self.user_name = words.person_name(rng)
            self.add(introduction(rng, "train", self.user_name))
        else:
            self.add(name_question(rng, "train", self.user_name))


def introduction(rng: Random, split: str, name: str) -> Turn:
    return Turn(rng.choice(phrases.INTRODUCE.of(split)).format(name=name), f"Nice to meet you, {name}.", keep_case=True)


def name_question(rng: Random, split: str, name: str | None) -> Turn:
    answer = f"Your name is {name}." if name else dialogue.UNKNOWN_ANSWER
    return Turn(rng.choice(phrases.ASK_NAME.of(split)), answer)


def conversation(rng: Random) -> list[Message]:
    """One conversation of the training text."""
    made = Conversation(rng)
    if rng.random() < SYSTEM_SHARE:
        made.messages.append(system_prompt(rng, "train"))
    turns = rng.choices(list(CHANCES_OF_TURNS), list(CHANCES_OF_TURNS.values()))[0]
    for number in range(turns):
        if number > 0 and rng.random() < LATE_SYSTEM_SHARE:
            made.messages.append(system_prompt(rng, "train"))
        made.add_turn()
    return made.messages


def plain_text(rng: Random) -> str:
    """A text without roles, so that the model can also go on with a plain prompt."""
    kind = rng.randrange(5)
    if kind == 0:
        return tasks.capital(rng, "train").answer
    if kind == 1:
        return rng.choice([tasks.small_sum, tasks.large_sum, tasks.difference])(rng, "train").answer
    if kind == 2:
        return rng.choice(dialogue.ZEROHOP).answer
    if kind == 3:
        return tasks.story(rng, "train").answer
    return ", ".join(rng.choice([facts.DAYS, facts.MONTHS])) + "."


def tokenizer_texts(seed: int) -> list[str]:
    """What the tokenizer learns from: conversations, and every known name often enough to become one token."""
    rng = Random(seed)
    texts = [message["content"] for _ in range(20000) for message in conversation(rng)]
    known = [*facts.CAPITALS, *facts.CAPITALS.values()]
    texts += [name for name in [*known, *facts.NAMES, *facts.CITIES] for _ in range(300)]
    texts += [f'a {item}, "{item}"' for item in facts.ITEMS for _ in range(150)]
    return texts
