"""The tokenizer: SentencePiece's vocabulary from the GGUF file, written as a Hugging Face tokenizer.json, and checked.

It never guesses: merges follow from the pieces' scores alone. Invariant: on the samples, the written tokenizer gives the
ids of the plain algorithm below, which joins the best-scored pair of neighbours until none is left.
"""

import re
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from source import Source

# Kinds of pieces in a GGUF file.
NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6
BLANK = "▁"
SAMPLES = 200

TEXTS = [
    "Hello, world!", "   indented\n\n\n\ttabs\r\n", '{"name": "Ada", "age": 3, "tags": ["a", "b"]}', "naïve café, Ünïcödé",
    "日本語のテキストと漢字", "Здравствуй, мир", "مرحبا بالعالم", "🙂👩‍👩‍👧‍👦 𝔘𝔫𝔦", "e\u0301x\u0000y", "x = [i ** 2 for i in range(10)]  # squares",
    "http://example.org/a?b=c&d=%20e", "3.14159 1,000,000 2027-01-31", "a" * 300, " ", "\n", "<div class=\"a\">text</div>",
]


def write(source: Source, path: Path) -> None:
    """Write tokenizer.json and check it."""
    tokenizer = _tokenizer(source)
    tokenizer.save(str(path))
    _check(source, Tokenizer.from_file(str(path)))


def _kinds(source: Source) -> list[int]:
    return source.field("tokenizer.ggml.token_type")


def _of_kind(source: Source, kind: int) -> list[str]:
    return [token for token, found in zip(source.tokens, _kinds(source)) if found == kind]


def _merges(source: Source) -> list[tuple[str, str]]:
    """All ways to make a piece of two others, best score first.

    SentencePiece has no list of merges: a pair may be joined if the result is a piece, and the score says when.
    """
    kinds, scores = _kinds(source), source.field("tokenizer.ggml.scores")
    usable = {token: number for number, token in enumerate(source.tokens) if kinds[number] in (NORMAL, USER_DEFINED)}
    found = []
    for token, number in usable.items():
        if kinds[number] != NORMAL:
            continue
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs = sorted((usable[left], usable[right], left, right) for left, right in halves if left in usable and right in usable)
        found += [(-scores[number], number, left, right) for _, _, left, right in pairs]
    found.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in found]


def _tokenizer(source: Source) -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(source.tokens)}
    if len(vocabulary) != len(source.tokens):
        raise SystemExit("error: two tokens are spelled alike")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=_merges(source), unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", BLANK)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _of_kind(source, CONTROL)])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in _of_kind(source, USER_DEFINED)])
    return tokenizer


class Plain:
    """SentencePiece's joining, as plain as it gets. Control and user-defined tokens are found first, the
    longest where several fit."""

    def __init__(self, source: Source) -> None:
        self.kinds, self.scores = _kinds(source), source.field("tokenizer.ggml.scores")
        self.ids = {token: number for number, token in enumerate(source.tokens)}
        fixed = sorted(_of_kind(source, USER_DEFINED) + _of_kind(source, CONTROL), key=len, reverse=True)
        self.fixed = re.compile("(" + "|".join(map(re.escape, fixed)) + ")")

    def _candidates(self, parts: list[str], at: list[int]) -> list[tuple[float, int, int, int]]:
        return [pair for here, there in zip(at, at[1:]) if (pair := self._pair(parts, here, there))]

    def _pair(self, parts: list[str], here: int, there: int) -> tuple[float, int, int, int] | None:
        number = self.ids.get(parts[here] + parts[there])
        if number is None or self.kinds[number] != NORMAL:
            return None
        return -self.scores[number], here, there, len(parts[here] + parts[there])

    def encode(self, text: str) -> list[int]:
        pieces = self.fixed.split(text)
        # Every second piece is such a token.
        return [number for at, piece in enumerate(pieces) for number in ([self.ids[piece]] if at % 2 else self._join(piece))]

    def _join(self, text: str) -> list[int]:
        parts = list(text.replace(" ", BLANK))
        following = {at: at + 1 for at in range(len(parts))}
        preceding = {at: at - 1 for at in range(len(parts))}
        heap = self._candidates(parts, list(range(len(parts))))
        heapify(heap)
        while heap:
            _, here, there, length = heappop(heap)
            if not parts[here] or not parts[there] or following[here] != there or len(parts[here] + parts[there]) != length:
                continue
            parts[here], parts[there] = parts[here] + parts[there], ""
            following[here] = following[there]
            if following[here] < len(parts):
                preceding[following[here]] = here
            for pair in ((preceding[here], here), (here, following[here])):
                if pair[0] >= 0 and pair[1] < len(parts) and (found := self._pair(parts, *pair)):
                    heappush(heap, found)
        ids = []
        for part in filter(None, parts):
            number = self.ids.get(part)
            ids += [number] if number is not None else [self.ids[f"<0x{byte:02X}>"] for byte in part.encode()]
        return ids


def _check(source: Source, tokenizer: Tokenizer) -> None:
    plain, rng = Plain(source), Random(7)
    letters = sorted({character for text in TEXTS for character in text})
    texts = TEXTS + [path.read_text()[:3000] for path in sorted(Path(__file__).parent.glob("*.py")) if path.name != Path(__file__).name]
    texts += ["".join(rng.choices(letters, k=rng.randrange(1, 80))) for _ in range(SAMPLES)]
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if tokenizer.decode(ids, skip_special_tokens=False) != text:
            raise SystemExit(f"error: the tokenizer does not give back {text[:60]!r}")
        if ids != plain.encode(text):
            raise SystemExit(f"error: the tokenizer and SentencePiece's algorithm differ on {text[:60]!r}")
    for token in ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]:
        if tokenizer.encode(token, add_special_tokens=False).ids != [source.token(token)]:
            raise SystemExit(f"error: {token} is not read as one token")
    print(f"tokenizer: {len(source.tokens)} tokens; {len(texts)} texts give the ids of SentencePiece's algorithm", flush=True)
