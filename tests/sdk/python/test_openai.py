"""The official OpenAI SDK, unchanged, against the gateway."""

import os
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from conftest import CAPITAL, ENCODER, MODEL, RAMBLE, openai_client, url

ASK = {"model": MODEL, "max_completion_tokens": 64, "temperature": 0, "messages": [{"role": "user", "content": CAPITAL}]}


def test_plain(gpt):
    completion = gpt.chat.completions.create(**ASK)
    assert completion.object == "chat.completion" and completion.model == MODEL
    assert completion.id.startswith("chatcmpl-")
    (choice,) = completion.choices
    assert choice.index == 0 and choice.finish_reason == "stop" and choice.message.role == "assistant"
    assert "Paris" in choice.message.content
    usage = completion.usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_request_id(gpt):
    assert gpt.chat.completions.create(**ASK)._request_id.startswith("req_")


def test_stream_equals_plain(gpt):
    plain = gpt.chat.completions.create(**ASK)
    chunks = list(gpt.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}))
    assert len({(chunk.id, chunk.model, chunk.created) for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage == plain.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-2].choices[0].finish_reason == plain.choices[0].finish_reason
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == plain.choices[0].message.content


def test_stream_without_usage(gpt):
    chunks = list(gpt.chat.completions.create(**ASK, stream=True))
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)


def test_developer_message_and_parts(gpt):
    completion = gpt.chat.completions.create(
        model=MODEL,
        max_tokens=32,
        temperature=0,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": CAPITAL}]},
        ],
    )
    assert completion.choices[0].message.content


def test_seed(gpt):
    # The bundled model is sure of most answers; of how to go on from one word it is not.
    started = [{"role": "user", "content": "Tell me something."}, {"role": "assistant", "content": "The"}]
    ask = {"model": MODEL, "messages": started, "temperature": 1.5, "max_completion_tokens": 32}
    texts = [gpt.chat.completions.create(**ask, seed=seed).choices[0].message.content for seed in (1, 1, 2, 3, 4, 5)]
    assert texts[0] == texts[1], "the same seed, the same answer"
    assert len(set(texts)) > 1, "another seed, another answer"


def test_length(gpt):
    completion = gpt.chat.completions.create(**{**ASK, "max_completion_tokens": 1})
    assert completion.choices[0].finish_reason == "length" and completion.usage.completion_tokens == 1


def test_stop(gpt):
    completion = gpt.chat.completions.create(**ASK, stop=["Paris"])
    assert completion.choices[0].finish_reason == "stop"
    assert "Paris" not in (completion.choices[0].message.content or "")


def test_embeddings(gpt):
    texts = ["A boat crossed the ocean.", "The ship sailed across the sea.", "Students wrote an exam at school."]
    # The SDK asks for base64 by itself and gives floats.
    answer = gpt.embeddings.create(model=ENCODER, input=texts)
    assert answer.object == "list" and answer.model == ENCODER
    assert [entry.index for entry in answer.data] == [0, 1, 2]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    first, near, far = (entry.embedding for entry in answer.data)
    assert len(first) == 64 and abs(sum(number * number for number in first) - 1) < 1e-5
    cosine = lambda other: sum(a * b for a, b in zip(first, other))
    assert cosine(near) > cosine(far) + 0.2
    plain = gpt.embeddings.create(model=ENCODER, input=texts, encoding_format="float")
    for entry, vector in zip(plain.data, [first, near, far]):
        assert entry.embedding == pytest.approx(vector, abs=1e-7)
    ids = gpt.embeddings.create(model=ENCODER, input=[[7, 8], [9]], dimensions=64)
    assert len(ids.data) == 2 and ids.usage.prompt_tokens == 3


def test_embeddings_are_refused_by_name(gpt):
    for more, param in [({"input": ""}, "input"), ({"dimensions": 8}, "dimensions"), ({"model": MODEL}, "model")]:
        with pytest.raises(openai.BadRequestError) as caught:
            gpt.embeddings.create(**{"model": ENCODER, "input": "a"} | more)
        assert caught.value.param == param


def test_models(gpt):
    assert [model.id for model in gpt.models.list()] == [MODEL, ENCODER]
    model = gpt.models.retrieve(MODEL)
    assert model.object == "model" and model.created > 0 and model.owned_by


@pytest.mark.parametrize(
    ("change", "error", "status"),
    [
        ({"model": "nobody"}, openai.NotFoundError, 404),
        ({"messages": []}, openai.BadRequestError, 400),
        ({"max_completion_tokens": -1}, openai.BadRequestError, 400),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, openai.BadRequestError, 400),
        ({"messages": [{"role": "user", "content": "x" * (33 << 20)}]}, openai.APIStatusError, 413),
    ],
    ids=["model", "empty", "range", "long", "large"],
)
def test_errors(gpt, change, error, status):
    with pytest.raises(error) as caught:
        gpt.chat.completions.create(**{**ASK, **change})
    assert caught.value.status_code == status
    assert caught.value.body["message"] and caught.value.type == "invalid_request_error"
    assert caught.value.request_id.startswith("req_")


def test_error_codes(gpt):
    with pytest.raises(openai.NotFoundError) as unknown:
        gpt.chat.completions.create(**{**ASK, "model": "nobody"})
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        gpt.chat.completions.create(**{**ASK, "messages": [{"role": "user", "content": "word " * 20_000}]})
    assert long.value.code == "context_length_exceeded" and long.value.param == "messages"


def test_key():
    good = openai_client(url("_KEYED"), os.environ["ZEROHOP_KEY"])
    assert good.chat.completions.create(**ASK).choices
    with pytest.raises(openai.AuthenticationError) as caught:
        openai_client(url("_KEYED"), "sk-wrong").chat.completions.create(**ASK)
    assert caught.value.status_code == 401 and caught.value.code == "invalid_api_key"


def test_retry_after_a_full_queue():
    def ask(client, seed):
        try:
            return client.chat.completions.create(model=MODEL, max_completion_tokens=512, seed=seed, messages=RAMBLE)
        except openai.RateLimitError as error:
            assert float(error.response.headers["retry-after-ms"]) > 0
            assert float(error.response.headers["retry-after"]) > 0
            return None

    def ask_all(client):
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda seed: ask(client, seed), range(48)))

    impatient = ask_all(openai_client(url("_BUSY")))
    assert any(impatient) and not all(impatient), "some were served and some were told to come back"
    assert all(ask_all(openai_client(url("_BUSY"), retries=100))), "who comes back is served"


def test_several_answers(gpt):
    ask = {**ASK, "n": 3, "temperature": 1.5, "seed": 5, "max_completion_tokens": 16}
    ask["messages"] = [{"role": "user", "content": "Tell me something."}, {"role": "assistant", "content": "The"}]
    plain = gpt.chat.completions.create(**ask)
    assert [choice.index for choice in plain.choices] == [0, 1, 2]
    # Each answer has the seed of its place, so one by itself says the same.
    single = gpt.chat.completions.create(**{**ask, "n": 1, "seed": 6})
    assert single.choices[0].message.content == plain.choices[1].message.content
    assert plain.usage.prompt_tokens == single.usage.prompt_tokens
    chunks = list(gpt.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    texts = {0: "", 1: "", 2: ""}
    for chunk in chunks[:-1]:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert list(texts.values()) == [choice.message.content for choice in plain.choices]
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"n": 9}, "n"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format.json_schema.schema"),
        ({"functions": [{"name": "f g"}]}, "functions[0].name"),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "r"}]}, "messages[0].tool_call_id"),
    ],
    ids=["n", "top", "top-range", "bias", "penalty", "tool", "choice", "schema", "functions", "result"],
)
def test_wishes_that_are_wrong(gpt, change, param):
    with pytest.raises(openai.BadRequestError) as caught:
        gpt.chat.completions.create(**{**ASK, **change})
    assert caught.value.param == param and caught.value.type == "invalid_request_error"


COMPLETE = {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 12, "temperature": 0}


def test_completion(gpt):
    completion = gpt.completions.create(**COMPLETE)
    assert completion.object == "text_completion" and completion.id.startswith("cmpl-") and completion.model == MODEL
    (choice,) = completion.choices
    assert choice.index == 0 and choice.text and choice.logprobs is None
    assert choice.finish_reason in ("stop", "length")
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    assert completion._request_id.startswith("req_")


def test_completion_stream_equals_plain(gpt):
    ask = {**COMPLETE, "prompt": ["Hello", "The"], "n": 2}
    plain = gpt.completions.create(**ask)
    chunks = list(gpt.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    texts = [""] * 4
    for chunk in chunks[:-1]:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in plain.choices]
    assert chunks[-1].choices == [] and chunks[-1].usage == plain.usage


def test_completion_echo(gpt):
    plain = gpt.completions.create(**COMPLETE)
    echoed = gpt.completions.create(**COMPLETE, echo=True)
    assert echoed.choices[0].text == COMPLETE["prompt"] + plain.choices[0].text
    assert gpt.completions.create(**{**COMPLETE, "max_tokens": 0}, echo=True).choices[0].text == COMPLETE["prompt"]


def test_completion_logprobs(gpt):
    (choice,) = gpt.completions.create(**COMPLETE, logprobs=2).choices
    told = choice.logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(told.text_offset)
    assert "".join(told.tokens) in ("", choice.text)


def test_completion_of_tokens(gpt):
    one = gpt.completions.create(**{**COMPLETE, "prompt": [1, 72]})
    both = gpt.completions.create(**{**COMPLETE, "prompt": [[1, 72], [1]]})
    assert one.usage.prompt_tokens == 2 and both.usage.prompt_tokens == 3
    assert both.choices[0].text == one.choices[0].text


@pytest.mark.parametrize(
    "change",
    [{"prompt": [10**6]}, {"prompt": []}, {"suffix": "x"}, {"best_of": 2}, {"logprobs": 6}, {"prompt": "word " * 20_000}],
    ids=["token", "empty", "suffix", "best_of", "logprobs", "long"],
)
def test_completion_errors(gpt, change):
    with pytest.raises(openai.BadRequestError) as caught:
        gpt.completions.create(**{**COMPLETE, **change})
    assert caught.value.param == next(iter(change)) and caught.value.type == "invalid_request_error"
