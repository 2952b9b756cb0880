"""Tools, structured output and log probabilities by the official SDKs, against the bundled model.

Whatever such a small model says, what is forced is guaranteed: these tests look at forms, not at wisdom.
"""

import json

import anthropic
import openai
import pydantic
import pytest
from conftest import CAPITAL, MODEL

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
ASK = [{"role": "user", "content": CAPITAL}]
GPT = {"model": MODEL, "max_completion_tokens": 128, "temperature": 0, "messages": ASK}
CLAUDE = {"model": MODEL, "max_tokens": 128, "messages": ASK, "extra_body": {"temperature": 0}}
FUNCTIONS = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": SCHEMA}}
    for name in ("weather", "travel")
]
TOOLS = [{"name": name, "description": "A tool.", "input_schema": SCHEMA} for name in ("weather", "travel")]


class Trip(pydantic.BaseModel):
    city: str
    days: int


def check(arguments: dict) -> None:
    assert set(arguments) == {"city", "days"}
    assert arguments["city"] in ("Paris", "Rome") and 1 <= arguments["days"] <= 9


class TestOpenAi:
    @pytest.mark.parametrize(
        ("choice", "names"),
        [
            ("required", {"weather", "travel"}),
            ({"type": "function", "function": {"name": "travel"}}, {"travel"}),
            (
                {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}},
                {"weather"},
            ),
        ],
        ids=["required", "function", "allowed"],
    )
    def test_forced(self, gpt, choice, names):
        ask = {**GPT, "tools": FUNCTIONS, "tool_choice": choice, "parallel_tool_calls": False}
        plain = gpt.chat.completions.create(**ask).choices[0]
        (call,) = plain.message.tool_calls
        assert plain.finish_reason == "tool_calls" and call.id.startswith("call_")
        assert call.function.name in names
        check(json.loads(call.function.arguments))
        with gpt.chat.completions.stream(**ask) as stream:
            final = stream.get_final_completion().choices[0]
        (streamed,) = final.message.tool_calls
        assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)
        assert final.finish_reason == "tool_calls"

    def test_none_and_auto(self, gpt):
        none = gpt.chat.completions.create(**GPT, tools=FUNCTIONS, tool_choice="none").choices[0]
        assert none.message.tool_calls is None and none.finish_reason in ("stop", "length")
        auto = gpt.chat.completions.create(**GPT, tools=FUNCTIONS).choices[0]
        for call in auto.message.tool_calls or []:
            check(json.loads(call.function.arguments))

    def test_history(self, gpt):
        call = gpt.chat.completions.create(**GPT, tools=FUNCTIONS, tool_choice="required", parallel_tool_calls=False)
        message = call.choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Sunny."}
        answer = gpt.chat.completions.create(**{**GPT, "messages": [*ASK, message, result]}, tools=FUNCTIONS)
        assert answer.usage.prompt_tokens > call.usage.prompt_tokens

    def test_parse(self, gpt):
        choice = gpt.chat.completions.parse(**GPT, response_format=Trip).choices[0]
        assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Trip)

    def test_json_object(self, gpt):
        choice = gpt.chat.completions.create(**GPT, response_format={"type": "json_object"}).choices[0]
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)

    @pytest.mark.parametrize(
        ("form", "right"),
        [
            ({"structured_outputs": {"regex": "[ab]{3}"}}, lambda text: len(text) == 3 and set(text) <= {"a", "b"}),
            ({"structured_outputs": {"choice": ["yes", "no"]}}, lambda text: text in ("yes", "no")),
            ({"structured_outputs": {"grammar": 'start: "on" | "off"'}}, lambda text: text in ("on", "off")),
            ({"guided_json": SCHEMA}, lambda text: check(json.loads(text)) is None),
        ],
        ids=["regex", "choice", "grammar", "json"],
    )
    def test_other_forms(self, gpt, form, right):
        choice = gpt.chat.completions.create(**GPT, extra_body=form).choices[0]
        assert choice.finish_reason == "stop" and right(choice.message.content)

    def test_log_probabilities(self, gpt):
        ask = {**GPT, "logprobs": True, "top_logprobs": 3}
        choice = gpt.chat.completions.create(**ask).choices[0]
        entries = choice.logprobs.content
        assert b"".join(bytes(entry.bytes) for entry in entries).decode() == choice.message.content
        for entry in entries:
            assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
            tops = [top.logprob for top in entry.top_logprobs]
            assert tops == sorted(tops, reverse=True)
            assert entry.top_logprobs[0].token == entry.token, "greedy takes the most probable"
        streamed = []
        for chunk in gpt.chat.completions.create(**ask, stream=True):
            if chunk.choices[0].logprobs:
                streamed += chunk.choices[0].logprobs.content
        assert streamed == entries

    def test_bias_and_penalties(self, gpt):
        told = gpt.chat.completions.create(**GPT, logprobs=True).choices[0]
        plain = told.message.content
        assert gpt.chat.completions.create(**GPT, frequency_penalty=0, presence_penalty=0).choices[0].message.content == plain
        for change in ({"frequency_penalty": 2.0, "presence_penalty": 2.0}, {"extra_body": {"repetition_penalty": 2.0}}):
            again = [gpt.chat.completions.create(**GPT, **change).choices[0].message.content for _ in range(2)]
            assert again[0] == again[1]

    def test_a_schema_that_cannot_be_guaranteed(self, gpt):
        schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        with pytest.raises(openai.BadRequestError) as caught:
            gpt.chat.completions.create(**GPT, response_format=form)
        assert caught.value.param == "response_format.json_schema.schema"


class TestAnthropic:
    @pytest.mark.parametrize(
        ("choice", "names"),
        [
            ({"type": "any", "disable_parallel_tool_use": True}, {"weather", "travel"}),
            ({"type": "tool", "name": "travel", "disable_parallel_tool_use": True}, {"travel"}),
        ],
        ids=["any", "tool"],
    )
    def test_forced(self, claude, choice, names):
        ask = {**CLAUDE, "tools": TOOLS, "tool_choice": choice}
        plain = claude.messages.create(**ask)
        (block,) = [block for block in plain.content if block.type == "tool_use"]
        assert plain.stop_reason == "tool_use" and block.id.startswith("toolu_") and block.name in names
        check(block.input)
        with claude.messages.stream(**ask) as stream:
            final = stream.get_final_message()
        (streamed,) = [block for block in final.content if block.type == "tool_use"]
        assert (streamed.name, streamed.input, final.stop_reason) == (block.name, block.input, "tool_use")

    def test_history_is_counted(self, claude):
        call = claude.messages.create(**CLAUDE, tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True})
        (block,) = [block for block in call.content if block.type == "tool_use"]
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "Sunny."}]}
        history = [*ASK, {"role": "assistant", "content": call.content}, result]
        answer = claude.messages.create(**{**CLAUDE, "messages": history}, tools=TOOLS)
        counted = claude.messages.count_tokens(model=MODEL, messages=history, tools=TOOLS)
        assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
        assert counted.input_tokens > claude.messages.count_tokens(model=MODEL, messages=ASK).input_tokens

    def test_parse(self, claude):
        message = claude.messages.parse(**CLAUDE, output_format=Trip)
        assert isinstance(message.parsed_output, Trip) and message.stop_reason == "end_turn"

    def test_a_schema_that_cannot_be_guaranteed(self, claude):
        schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
        with pytest.raises(anthropic.BadRequestError, match="output_config.format.schema: "):
            claude.messages.create(**CLAUDE, output_config={"format": {"type": "json_schema", "schema": schema}})
