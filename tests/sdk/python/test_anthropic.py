"""The official Anthropic SDK, unchanged, against the gateway."""

import os
from concurrent.futures import ThreadPoolExecutor

import anthropic
import pytest
from conftest import CAPITAL, ENCODER, MODEL, RAMBLE, anthropic_client, url

# The SDK of this version has no argument for the temperature, the gateway honours it all the same.
GREEDY = {"temperature": 0}
ASK = {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": CAPITAL}], "extra_body": GREEDY}


def test_plain(claude):
    message = claude.messages.create(**ASK)
    assert message.type == "message" and message.role == "assistant" and message.model == MODEL
    assert message.id.startswith("msg_")
    assert [block.type for block in message.content] == ["text"]
    assert "Paris" in message.content[0].text
    assert message.stop_reason == "end_turn" and message.stop_sequence is None
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0


def test_request_id(claude):
    message = claude.messages.create(**ASK)
    assert message._request_id.startswith("req_")


def test_raw_events(claude):
    names = [event.type for event in claude.messages.create(**ASK, stream=True)]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) <= {"content_block_delta", "ping"} and "content_block_delta" in names


def test_stream_helper_equals_plain(claude):
    plain = claude.messages.create(**ASK)
    with claude.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == plain.content[0].text
    assert final.usage.output_tokens == plain.usage.output_tokens
    assert final.usage.input_tokens == plain.usage.input_tokens
    assert final.stop_reason == plain.stop_reason


def test_system_and_turns(claude):
    message = claude.messages.create(
        model=MODEL,
        max_tokens=32,
        extra_body=GREEDY,
        system=[{"type": "text", "text": "Be brief."}],
        messages=[
            {"role": "user", "content": CAPITAL},
            {"role": "assistant", "content": "Paris."},
            {"role": "user", "content": [{"type": "text", "text": "What is the capital of Italy?"}]},
        ],
    )
    assert message.content[0].text


def test_max_tokens(claude):
    message = claude.messages.create(**{**ASK, "max_tokens": 1})
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 1


def test_stop_sequence(claude):
    message = claude.messages.create(**ASK, stop_sequences=["Paris"])
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == "Paris"
    assert "Paris" not in "".join(block.text for block in message.content)


def test_count_tokens(claude):
    counted = claude.messages.count_tokens(model=MODEL, messages=ASK["messages"])
    assert counted.input_tokens == claude.messages.create(**ASK).usage.input_tokens


def test_models(claude):
    models = list(claude.models.list())
    assert [model.id for model in models] == [MODEL, ENCODER]
    model = claude.models.retrieve(MODEL)
    assert model.type == "model" and model.display_name and model.created_at.year >= 2020


@pytest.mark.parametrize(
    ("change", "error", "status", "kind"),
    [
        ({"model": "nobody"}, anthropic.NotFoundError, 404, "not_found_error"),
        ({"messages": []}, anthropic.BadRequestError, 400, "invalid_request_error"),
        ({"max_tokens": -1}, anthropic.BadRequestError, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, anthropic.BadRequestError, 400,
         "invalid_request_error"),
        ({"messages": [{"role": "user", "content": "x" * (33 << 20)}]}, anthropic.RequestTooLargeError, 413,
         "request_too_large"),
    ],
    ids=["model", "empty", "range", "long", "large"],
)
def test_errors(claude, change, error, status, kind):
    with pytest.raises(error) as caught:
        claude.messages.create(**{**ASK, **change})
    assert caught.value.status_code == status
    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] == kind
    assert caught.value.request_id == caught.value.body["request_id"]


def test_key():
    good = anthropic_client(url("_KEYED"), os.environ["ZEROHOP_KEY"])
    assert good.messages.create(**ASK).content
    with pytest.raises(anthropic.AuthenticationError) as caught:
        anthropic_client(url("_KEYED"), "sk-wrong").messages.create(**ASK)
    assert caught.value.status_code == 401


def test_retry_after_a_full_queue():
    def ask(client, _):
        try:
            return client.messages.create(model=MODEL, max_tokens=512, messages=RAMBLE)
        except anthropic.RateLimitError as error:
            assert float(error.response.headers["retry-after-ms"]) > 0
            assert float(error.response.headers["retry-after"]) > 0
            return None

    def ask_all(client):
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda index: ask(client, index), range(48)))

    impatient = ask_all(anthropic_client(url("_BUSY")))
    assert any(impatient) and not all(impatient), "some were served and some were told to come back"
    assert all(ask_all(anthropic_client(url("_BUSY"), retries=100))), "who comes back is served"


def test_nothing_but_the_prompt(claude):
    message = claude.messages.create(**{**ASK, "max_tokens": 0})
    assert message.content == [] and message.stop_reason == "max_tokens"
    assert message.usage.input_tokens > 0 and message.usage.output_tokens == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "tools.0.name: "),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema: Field required"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'web_search_20250305'"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: "),
        ({"output_config": {"format": {"type": "json_schema", "schema": []}}}, "output_config.format.schema: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}]},
            "messages.0.content.0.tool_use_id: ",
        ),
    ],
    ids=["name", "schema", "server", "choice", "format", "result"],
)
def test_wishes_that_are_wrong(claude, change, told):
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(**{**ASK, **change})
    error = caught.value.body["error"]
    assert error["type"] == "invalid_request_error" and told in error["message"]
