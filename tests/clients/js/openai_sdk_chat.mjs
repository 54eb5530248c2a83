// The official JavaScript client on Chat Completions.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { ADD_SCHEMA, BASE_URL, MODEL, add, report } from "./server.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "none", maxRetries: 0 });
const completions = client.chat.completions;

const ADD = { type: "function", function: { name: "add", parameters: ADD_SCHEMA, strict: true } };

const user = (content) => [{ role: "user", content }];
const whole = (params) => completions.create({ model: MODEL, ...params });
const streamed = (params) => completions.stream({ model: MODEL, ...params }).finalChatCompletion();

// The loop that its users write.
async function loop(ask, question) {
  const messages = user(question);
  const said = [];
  for (;;) {
    const [{ message, finish_reason }] = (await ask({ messages, tools: [ADD] })).choices;
    messages.push(message);
    if (!message.tool_calls?.length) return [...said, message.content, finish_reason];
    for (const call of message.tool_calls) {
      const content = add(JSON.parse(call.function.arguments));
      said.push(content);
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
}

// The loop that the client runs itself.
async function runner() {
  const tool = { ...ADD, function: { ...ADD.function, function: add, parse: JSON.parse } };
  const run = completions.runTools({ model: MODEL, messages: user("add both pairs"), tools: [tool], stream: true });
  return run.finalContent();
}

async function deltas() {
  const pieces = [];
  for await (const chunk of await whole({ messages: user("hi"), stream: true })) {
    pieces.push(chunk.choices[0].delta.content ?? chunk.choices[0].finish_reason);
  }
  return pieces;
}

// From the chunks: of a field that it does not know, the streaming aid keeps the last piece only.
async function reasoning() {
  let text = "";
  for await (const { choices } of await whole({ messages: user("think"), stream: true })) {
    text += choices[0].delta.reasoning_content ?? "";
  }
  return text;
}

async function parsed() {
  const response_format = zodResponseFormat(z.object({ city: z.string(), degrees: z.number() }), "weather");
  const completion = await completions.parse({ model: MODEL, messages: user("weather as JSON"), response_format });
  return completion.choices[0].message.parsed;
}

async function stored() {
  const { id } = await whole({ messages: user("hi"), metadata: { of: "javascript" } });
  const listed = [];
  for await (const completion of completions.list({ metadata: { of: "javascript" } })) listed.push(completion.id);
  const changed = await completions.update(id, { metadata: { of: "nobody" } });
  const { deleted } = await completions.delete(id);
  return [listed.length === 1 && listed[0] === id, changed.metadata, deleted];
}

async function failingStream() {
  for await (const _chunk of await whole({ messages: user("boom"), stream: true }));
}

await report({
  deltas,
  reasoning,
  parsed,
  stored,
  loop: () => loop(whole, "add both pairs"),
  "loop, streamed": () => loop(streamed, "think, then add"),
  runner,
  failing: () => whole({ messages: user("boom") }),
  "failing, streamed": failingStream,
  "failing, by the streaming aid": () => streamed({ messages: user("boom") }),
});
