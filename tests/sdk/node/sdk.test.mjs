// The official Node SDKs, unchanged, against the gateways whose addresses the runner gives in the environment.
// Nothing here starts a gateway; `cargo xtask test --only build,sdk-node` does.

import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { ZEROHOP_URL, ZEROHOP_URL_KEYED, ZEROHOP_URL_BUSY, ZEROHOP_KEY } = process.env;
const model = "tiny";
const encoder = "tiny-embed";
const messages = [{ role: "user", content: "What is the capital of France?" }];
const anthropicAsk = { model, max_tokens: 64, temperature: 0, messages };
const openaiAsk = { model, max_completion_tokens: 64, temperature: 0, messages };
// Answered at length, and so keeps a gateway with one place busy.
const ramble = { model, messages: [{ role: "user", content: "Count to 100." }] };

const anthropic = (baseURL = ZEROHOP_URL, apiKey = "any", maxRetries = 0) =>
  new Anthropic({ baseURL, apiKey, maxRetries });
const openai = (baseURL = ZEROHOP_URL, apiKey = "any", maxRetries = 0) =>
  new OpenAI({ baseURL: `${baseURL}/v1`, apiKey, maxRetries });

const textOf = (message) => message.content.map((block) => block.text).join("");

test("anthropic: plain", async () => {
  const message = await anthropic().messages.create(anthropicAsk);
  assert.match(message.id, /^msg_/);
  assert.match(textOf(message), /Paris/);
  assert.equal(message.model, model);
  assert.equal(message.stop_reason, "end_turn");
  assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
  assert.match(message._request_id, /^req_/);
});

test("anthropic: a stream equals the plain answer", async () => {
  const plain = await anthropic().messages.create(anthropicAsk);
  const stream = anthropic().messages.stream(anthropicAsk);
  let text = "";
  stream.on("text", (delta) => (text += delta));
  const final = await stream.finalMessage();
  assert.equal(text, textOf(plain));
  assert.equal(textOf(final), textOf(plain));
  assert.equal(final.usage.output_tokens, plain.usage.output_tokens);
  assert.equal(final.stop_reason, plain.stop_reason);
});

test("anthropic: raw events", async () => {
  const names = [];
  for await (const event of await anthropic().messages.create({ ...anthropicAsk, stream: true })) names.push(event.type);
  assert.deepEqual(names.slice(0, 2), ["message_start", "content_block_start"]);
  assert.deepEqual(names.slice(-3), ["content_block_stop", "message_delta", "message_stop"]);
});

test("anthropic: a stream that is left", async () => {
  const stream = await anthropic().messages.create({ ...ramble, max_tokens: 512, stream: true });
  for await (const event of stream) if (event.type === "content_block_delta") break;
  assert.equal(stream.controller.signal.aborted, true);
  assert.ok((await anthropic().messages.create(anthropicAsk)).content.length > 0);
});

test("anthropic: tokens are counted as they are used", async () => {
  const { input_tokens } = await anthropic().messages.countTokens({ model, messages });
  assert.equal(input_tokens, (await anthropic().messages.create(anthropicAsk)).usage.input_tokens);
});

test("anthropic: models", async () => {
  const ids = [];
  for await (const found of anthropic().models.list()) ids.push(found.id);
  assert.deepEqual(ids, [model, encoder]);
  assert.equal((await anthropic().models.retrieve(model)).type, "model");
});

const anthropicErrors = [
  ["an unknown model", { model: "nobody" }, Anthropic.NotFoundError, 404, "not_found_error"],
  ["no messages", { messages: [] }, Anthropic.BadRequestError, 400, "invalid_request_error"],
  ["a prompt that is too long", { messages: [{ role: "user", content: "word ".repeat(20_000) }] }, Anthropic.BadRequestError, 400,
    "invalid_request_error"],
  ["a body that is too large", { messages: [{ role: "user", content: "x".repeat(33 << 20) }] }, Anthropic.APIError, 413,
    "request_too_large"],
];
for (const [what, change, kind, status, type] of anthropicErrors) {
  test(`anthropic: ${what}`, async () => {
    await assert.rejects(anthropic().messages.create({ ...anthropicAsk, ...change }), (error) => {
      assert.ok(error instanceof kind, String(error));
      assert.equal(error.status, status);
      assert.equal(error.error.error.type, type);
      assert.match(error.requestID, /^req_/);
      return true;
    });
  });
}

test("anthropic: keys", async () => {
  assert.ok((await anthropic(ZEROHOP_URL_KEYED, ZEROHOP_KEY).messages.create(anthropicAsk)).content.length > 0);
  await assert.rejects(anthropic(ZEROHOP_URL_KEYED, "sk-wrong").messages.create(anthropicAsk), Anthropic.AuthenticationError);
});

test("openai: plain", async () => {
  const completion = await openai().chat.completions.create(openaiAsk);
  assert.match(completion.id, /^chatcmpl-/);
  assert.match(completion.choices[0].message.content, /Paris/);
  assert.equal(completion.choices[0].finish_reason, "stop");
  assert.equal(completion.usage.total_tokens, completion.usage.prompt_tokens + completion.usage.completion_tokens);
  assert.match(completion._request_id, /^req_/);
});

test("openai: a stream equals the plain answer", async () => {
  const plain = await openai().chat.completions.create(openaiAsk);
  const options = { ...openaiAsk, stream: true, stream_options: { include_usage: true } };
  const chunks = [];
  for await (const chunk of await openai().chat.completions.create(options)) chunks.push(chunk);
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(text, plain.choices[0].message.content);
  assert.deepEqual(chunks.at(-1).usage, plain.usage);
  assert.equal(chunks.at(-2).choices[0].finish_reason, plain.choices[0].finish_reason);
});

test("openai: the stream helper", async () => {
  const runner = openai().chat.completions.stream(openaiAsk);
  assert.match(await runner.finalContent(), /Paris/);
});

test("openai: embeddings", async () => {
  const input = ["A boat crossed the ocean.", "The ship sailed across the sea.", "Students wrote an exam at school."];
  // The SDK asks for base64 by itself and gives floats.
  const answer = await openai().embeddings.create({ model: encoder, input });
  assert.deepEqual(answer.data.map((entry) => entry.index), [0, 1, 2]);
  assert.ok(answer.usage.total_tokens > 0);
  const [first, near, far] = answer.data.map((entry) => entry.embedding);
  const cosine = (other) => first.reduce((sum, number, index) => sum + number * other[index], 0);
  assert.equal(first.length, 64);
  assert.ok(cosine(near) > cosine(far) + 0.2);
  const plain = await openai().embeddings.create({ model: encoder, input, encoding_format: "float" });
  plain.data.forEach(({ embedding }, index) => {
    assert.deepEqual(Float32Array.from(embedding), Float32Array.from(answer.data[index].embedding));
  });
  const refused = openai().embeddings.create({ model: encoder, input, dimensions: 8 });
  await assert.rejects(refused, (error) => error instanceof OpenAI.BadRequestError && error.param === "dimensions");
});

test("openai: models", async () => {
  const ids = [];
  for await (const found of openai().models.list()) ids.push(found.id);
  assert.deepEqual(ids, [model, encoder]);
  assert.equal((await openai().models.retrieve(model)).object, "model");
});

const openaiErrors = [
  ["an unknown model", { model: "nobody" }, OpenAI.NotFoundError, 404, "model_not_found"],
  ["no messages", { messages: [] }, OpenAI.BadRequestError, 400, null],
  ["a prompt that is too long", { messages: [{ role: "user", content: "word ".repeat(20_000) }] }, OpenAI.BadRequestError, 400,
    "context_length_exceeded"],
  ["a body that is too large", { messages: [{ role: "user", content: "x".repeat(33 << 20) }] }, OpenAI.APIError, 413, null],
];
for (const [what, change, kind, status, code] of openaiErrors) {
  test(`openai: ${what}`, async () => {
    await assert.rejects(openai().chat.completions.create({ ...openaiAsk, ...change }), (error) => {
      assert.ok(error instanceof kind, String(error));
      assert.equal(error.status, status);
      if (code) assert.equal(error.code, code);
      assert.match(error.requestID, /^req_/);
      return true;
    });
  });
}

test("openai: keys", async () => {
  assert.ok((await openai(ZEROHOP_URL_KEYED, ZEROHOP_KEY).chat.completions.create(openaiAsk)).choices.length > 0);
  await assert.rejects(openai(ZEROHOP_URL_KEYED, "sk-wrong").chat.completions.create(openaiAsk), OpenAI.AuthenticationError);
});

// One place and a queue of one: of many at once some are served, some are told to come back, and who does is served.
const crowd = async (ask) => {
  const answers = await Promise.allSettled(Array.from({ length: 48 }, (_, seed) => ask(seed)));
  return answers.map(({ value, reason }) => (value ? "served" : reason.status));
};

test("anthropic: retry after a full queue", async () => {
  const ask = (client) => () => client.messages.create({ ...ramble, max_tokens: 512 });
  const impatient = await crowd(ask(anthropic(ZEROHOP_URL_BUSY)));
  assert.deepEqual(new Set(impatient), new Set(["served", 429]));
  const patient = await crowd(ask(anthropic(ZEROHOP_URL_BUSY, "any", 100)));
  assert.deepEqual(new Set(patient), new Set(["served"]));
});

test("openai: retry after a full queue", async () => {
  const ask = (client) => (seed) => client.chat.completions.create({ ...ramble, max_completion_tokens: 512, seed });
  const impatient = await crowd(ask(openai(ZEROHOP_URL_BUSY)));
  assert.deepEqual(new Set(impatient), new Set(["served", 429]));
  const patient = await crowd(ask(openai(ZEROHOP_URL_BUSY, "any", 100)));
  assert.deepEqual(new Set(patient), new Set(["served"]));
});

test("openai: several answers", async () => {
  const several = await openai().chat.completions.create({ ...openaiAsk, n: 2 });
  assert.deepEqual(several.choices.map((choice) => choice.index), [0, 1]);
  const single = await openai().chat.completions.create(openaiAsk);
  assert.equal(several.choices[1].message.content, single.choices[0].message.content);
  assert.equal(several.usage.prompt_tokens, single.usage.prompt_tokens);
  assert.equal(several.usage.completion_tokens, 2 * single.usage.completion_tokens);
});

const badWishes = [
  ["too many answers", { n: 9 }, "n"],
  ["a tool without a good name", { tools: [{ type: "function", function: { name: "a b" } }] }, "tools[0].function.name"],
  ["a choice without tools", { tool_choice: "required" }, "tool_choice"],
  ["a penalty out of range", { frequency_penalty: 3 }, "frequency_penalty"],
];
for (const [what, change, param] of badWishes) {
  test(`openai: ${what}`, async () => {
    await assert.rejects(openai().chat.completions.create({ ...openaiAsk, ...change }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.equal(error.param, param);
      return true;
    });
  });
}

// Whatever so small a model says, what is forced is guaranteed: these look at forms, not at wisdom.
const schema = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] }, days: { type: "integer", minimum: 1, maximum: 9 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const checkTrip = (trip) => {
  assert.deepEqual(Object.keys(trip).sort(), ["city", "days"]);
  assert.ok(["Paris", "Rome"].includes(trip.city) && trip.days >= 1 && trip.days <= 9);
};
const functions = ["weather", "travel"].map((name) => ({ type: "function", function: { name, parameters: schema } }));
const tools = ["weather", "travel"].map((name) => ({ name, input_schema: schema }));

test("anthropic: a forced tool, plain and streamed", async () => {
  const ask = { ...anthropicAsk, max_tokens: 128, tools, tool_choice: { type: "tool", name: "travel", disable_parallel_tool_use: true } };
  const plain = await anthropic().messages.create(ask);
  const [call] = plain.content.filter((block) => block.type === "tool_use");
  assert.equal(plain.stop_reason, "tool_use");
  assert.equal(call.name, "travel");
  assert.match(call.id, /^toolu_/);
  checkTrip(call.input);
  const streamed = await anthropic().messages.stream(ask).finalMessage();
  assert.deepEqual(streamed.content.find((block) => block.type === "tool_use").input, call.input);
  const history = [...messages, { role: "assistant", content: plain.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "Sunny.", is_error: false }] }];
  assert.ok((await anthropic().messages.create({ ...ask, tool_choice: { type: "auto" }, messages: history })).usage.input_tokens > 0);
});

test("anthropic: a schema", async () => {
  const format = { type: "json_schema", schema };
  const message = await anthropic().messages.create({ ...anthropicAsk, max_tokens: 128, output_config: { format } });
  assert.equal(message.stop_reason, "end_turn");
  checkTrip(JSON.parse(textOf(message)));
});

test("openai: a forced function, plain and streamed", async () => {
  const ask = { ...openaiAsk, max_completion_tokens: 128, tools: functions, tool_choice: "required", parallel_tool_calls: false };
  const { message, finish_reason } = (await openai().chat.completions.create(ask)).choices[0];
  assert.equal(finish_reason, "tool_calls");
  assert.equal(message.tool_calls.length, 1);
  assert.match(message.tool_calls[0].id, /^call_/);
  checkTrip(JSON.parse(message.tool_calls[0].function.arguments));
  const streamed = await openai().chat.completions.stream(ask).finalMessage();
  assert.equal(streamed.tool_calls[0].function.arguments, message.tool_calls[0].function.arguments);
});

test("openai: a schema, parsed", async () => {
  const response_format = { type: "json_schema", json_schema: { name: "trip", strict: true, schema } };
  const { message } = (await openai().chat.completions.parse({ ...openaiAsk, max_completion_tokens: 128, response_format })).choices[0];
  checkTrip(JSON.parse(message.content));
});

test("openai: log probabilities", async () => {
  const { logprobs, message } = (await openai().chat.completions.create({ ...openaiAsk, logprobs: true, top_logprobs: 2 })).choices[0];
  const bytes = logprobs.content.flatMap((entry) => entry.bytes);
  assert.equal(Buffer.from(bytes).toString(), message.content);
  assert.ok(logprobs.content.every((entry) => entry.logprob <= 0 && entry.top_logprobs.length === 2));
});

const complete = { model, prompt: "The capital of France is", max_tokens: 12, temperature: 0 };

test("openai: completions", async () => {
  const plain = await openai().completions.create(complete);
  assert.equal(plain.object, "text_completion");
  assert.match(plain.id, /^cmpl-/);
  const [choice] = plain.choices;
  assert.ok(choice.text.length > 0 && choice.logprobs === null);
  let text = "";
  for await (const chunk of await openai().completions.create({ ...complete, stream: true }))
    text += chunk.choices[0].text;
  assert.equal(text, choice.text);
  const echoed = await openai().completions.create({ ...complete, echo: true, logprobs: 1 });
  assert.equal(echoed.choices[0].text, complete.prompt + choice.text);
  assert.equal(echoed.choices[0].logprobs.tokens.length, echoed.choices[0].logprobs.token_logprobs.length);
});
