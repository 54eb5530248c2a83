// The official JavaScript client.

import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

import { ADD_SCHEMA, BASE_URL, MODEL, add, report } from "./server.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "none", maxRetries: 0 });

const ADD = { type: "function", name: "add", parameters: ADD_SCHEMA, strict: true };
const SHOUT = { type: "custom", name: "shout" };
const MATH = {
  type: "namespace",
  name: "math",
  description: "Sums.",
  tools: [{ type: "function", name: "add", parameters: ADD_SCHEMA }],
};

const RUN = {
  function_call: (call) => ({
    type: "function_call_output",
    call_id: call.call_id,
    output: add(JSON.parse(call.arguments)),
  }),
  custom_tool_call: (call) => ({
    type: "custom_tool_call_output",
    call_id: call.call_id,
    output: call.input.toUpperCase(),
  }),
};

// What an item says, without its ids.
function told(item) {
  switch (item.type) {
    case "message":
      return [item.type, item.content.map((part) => part.text).join("")];
    case "reasoning":
      return [item.type, item.summary.map((part) => part.text).join("")];
    case "function_call":
      return [item.type, ...(item.namespace ? [item.namespace] : []), item.name, JSON.parse(item.arguments)];
    case "custom_tool_call":
      return [item.type, item.name, item.input];
    default:
      throw new Error(`nobody asked for ${JSON.stringify(item)}`);
  }
}

async function whole(params) {
  return client.responses.create({ model: MODEL, ...params });
}

// The streaming aid throws when an event is missing or an id changes.
async function streamed(params) {
  return client.responses.stream({ model: MODEL, ...params }).finalResponse();
}

// The loop that its users write. The conversation is kept by the server, or sent again each time.
async function loop(ask, question, { tools, kept }) {
  const items = [{ role: "user", content: question }];
  const said = [];
  let params = { input: items, tools };
  for (;;) {
    const response = await ask(params);
    said.push(...response.output.map(told));
    const outputs = response.output.filter((item) => item.type in RUN).map((call) => RUN[call.type](call));
    if (outputs.length === 0) return said;
    items.push(...response.output, ...outputs);
    params = kept
      ? { input: outputs, tools, previous_response_id: response.id }
      : { input: items, tools, store: false };
  }
}

async function deltas() {
  const stream = client.responses.stream({ model: MODEL, input: "hi" });
  const pieces = [];
  for await (const event of stream) if (event.type === "response.output_text.delta") pieces.push(event.delta);
  return pieces;
}

async function parsed() {
  const format = zodTextFormat(z.object({ city: z.string(), degrees: z.number() }), "weather");
  const response = await client.responses.parse({ model: MODEL, input: "weather as JSON", text: { format } });
  return response.output_parsed;
}

async function retrieved() {
  const { id } = await streamed({ input: "hi" });
  return (await client.responses.retrieve(id)).output_text;
}

// The server's sentence reaches the user, whole and streamed.
const failing = () => whole({ input: "boom" });

async function failingStream() {
  const stream = await client.responses.create({ model: MODEL, input: "boom", stream: true });
  for await (const _event of stream);
}

await report({
  text: async () => (await whole({ input: "hi" })).output_text,
  deltas,
  reasoning: async () => (await streamed({ input: "think" })).output.map(told),
  parsed,
  retrieved,
  "loop, kept": () => loop(whole, "add both pairs", { tools: [ADD], kept: true }),
  "loop, sent again": () => loop(whole, "think, then add", { tools: [ADD], kept: false }),
  "loop, streamed and kept": () => loop(streamed, "think, then add", { tools: [ADD], kept: true }),
  "loop, streamed and sent again": () => loop(streamed, "add both pairs", { tools: [ADD], kept: false }),
  namespace: () => loop(streamed, "add by namespace", { tools: [MATH], kept: false }),
  custom: () => loop(streamed, "shout hello", { tools: [SHOUT], kept: false }),
  failing,
  "failing, streamed": failingStream,
});
