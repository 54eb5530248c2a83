// The official JavaScript client: every method of `client.responses` beside `create`.

import OpenAI, { NotFoundError } from "openai";

import { BASE_URL, MODEL, report } from "./server.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "none", maxRetries: 0 });
const SLOW = "take your time";

async function ended(id) {
  for (;;) {
    const response = await client.responses.retrieve(id);
    if (!["queued", "in_progress"].includes(response.status)) return response;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function types(stream) {
  const found = [];
  for await (const event of stream) found.push(event.type);
  return found;
}

async function gone(ask) {
  try {
    await ask();
    return false;
  } catch (error) {
    return error instanceof NotFoundError;
  }
}

await report({
  background: async () => {
    const accepted = await client.responses.create({ model: MODEL, input: "hi", background: true });
    return [accepted.status, (await ended(accepted.id)).output_text];
  },
  "background, dropped and resumed": async () => {
    const stream = await client.responses.create({ model: MODEL, input: SLOW, background: true, stream: true });
    let id;
    for await (const event of stream) {
      id = event.response.id;
      if (event.type === "response.queued") break;
    }
    const rest = await types(await client.responses.retrieve(id, { stream: true, starting_after: 1 }));
    const whole = await types(await client.responses.retrieve(id, { stream: true }));
    return [whole.slice(0, 3), JSON.stringify(whole.slice(2)) === JSON.stringify(rest)];
  },
  "background, by the streaming aid": async () =>
    (await client.responses.stream({ model: MODEL, input: "hi", background: true }).finalResponse()).output_text,
  cancelled: async () => {
    const accepted = await client.responses.create({ model: MODEL, input: SLOW, background: true });
    const cancelled = await client.responses.cancel(accepted.id);
    return [cancelled.status, (await client.responses.cancel(accepted.id)).status];
  },
  "cancelled, by the streaming aid": async () => {
    const stream = client.responses.stream({ model: MODEL, input: SLOW, background: true });
    stream.on("response.created", (event) => client.responses.cancel(event.response.id));
    return (await stream.finalResponse()).status;
  },
  deleted: async () => {
    const { id } = await client.responses.create({ model: MODEL, input: "hi" });
    await client.responses.delete(id);
    return gone(() => client.responses.retrieve(id));
  },
  "input items": async () => {
    const first = await client.responses.create({ model: MODEL, input: "hi" });
    const second = await client.responses.create({ model: MODEL, input: "hi", previous_response_id: first.id });
    const found = [];
    for await (const item of client.responses.inputItems.list(second.id, { limit: 1, order: "asc" }))
      found.push(item.role);
    return found;
  },
  "input tokens": async () => {
    const counted = await client.responses.inputTokens.count({ model: MODEL, input: "one two" });
    const response = await client.responses.create({ model: MODEL, input: "one two" });
    return counted.input_tokens === response.usage.input_tokens;
  },
});
