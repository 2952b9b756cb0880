"""Clients for the suite: both SDKs, against the gateways whose addresses the runner gives.

Nothing here starts a gateway; `cargo xtask test --only build,sdk-python` does. A client is made as the SDK's own
documentation says, with a base URL and a key and nothing else changed.
"""

import os

import anthropic
import openai
import pytest

MODEL = "tiny"
ENCODER = "tiny-embed"
CAPITAL = "What is the capital of France?"
# Answered at length, and so keeps a gateway with one place busy.
RAMBLE = [{"role": "user", "content": "Count to 100."}]


def url(kind: str = "") -> str:
    """The address of one of the gateways."""
    return os.environ["ZEROHOP_URL" + kind]


def anthropic_client(base: str, key: str = "any", retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=base, api_key=key, max_retries=retries)


def openai_client(base: str, key: str = "any", retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=base + "/v1", api_key=key, max_retries=retries)


@pytest.fixture
def claude() -> anthropic.Anthropic:
    return anthropic_client(url())


@pytest.fixture
def gpt() -> openai.OpenAI:
    return openai_client(url())
