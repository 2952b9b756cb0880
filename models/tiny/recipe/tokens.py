"""The tokenizer and the way from messages to token ids.

Byte-level BPE trained on the corpus. Every digit is a token of its own, so that numbers of any
length look alike. The blank before a capital letter is a token of its own, so that a name has the
same tokens in a sentence and behind a quote, which makes it easy to copy. `Encoder` writes conversations exactly as chat_template.jinja does, and
`make.py` checks that it does.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
SPECIAL_TOKENS = ["<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
PAD, BOS, END, SYSTEM, USER, ASSISTANT = range(6)
ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn the vocabulary from texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(Regex(r" (?=\p{Lu})"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class Encoder:
    """Token ids of conversations and texts, with a mark on what the model has to learn to write."""

    def __init__(self, tokenizer_file: Path):
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))

    def conversations(self, batch: list[list[dict[str, str]]]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each conversation: ids, which ids the assistant writes, and the number of the message."""
        texts = [message["content"] for messages in batch for message in messages]
        encoded = iter(self.tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        result = []
        for messages in batch:
            ids, written, numbers = [BOS], [False], [0]
            for number, message in enumerate(messages):
                piece = next(encoded).ids
                ids += [ROLES[message["role"]], *piece, END]
                written += [False] + [message["role"] == "assistant"] * (len(piece) + 1)
                numbers += [number] * (len(piece) + 2)
            result.append((np.array(ids, np.int32), np.array(written), np.array(numbers, np.int32)))
        return result

    def texts(self, batch: list[str]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The same for plain texts, of which everything is to be learnt."""
        result = []
        for encoded in self.tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            ids = np.array([BOS, *encoded.ids, END], np.int32)
            result.append((ids, np.arange(len(ids)) > 0, np.zeros(len(ids), np.int32)))
        return result

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        """The ids of a conversation up to where the assistant starts to write."""
        ids = self.conversations([messages])[0][0].tolist()
        return ids + [ASSISTANT]

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids)
