// The AI SDK with its provider for OpenAI.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs } from "ai";

import { conversation, trials } from "./ai_sdk.mjs";
import { BASE_URL, MODEL, report } from "./server.mjs";

const openai = createOpenAI({ baseURL: BASE_URL, apiKey: "none" });
const model = openai.responses(MODEL);

async function custom() {
  const shout = { ...openai.tools.customTool({}), execute: (input) => input.toUpperCase() };
  const result = await generateText({
    model,
    prompt: "shout hello",
    tools: { shout },
    stopWhen: stepCountIs(5),
    maxRetries: 0,
  });
  return [result.steps[0].toolCalls.map((call) => [call.toolName, call.input]), result.text];
}

// Kept items are sent as references (`item_reference`), others whole.
const notStored = () => conversation(model, { openai: { store: false } });

await report(trials(model, { custom, "conversation, not stored": notStored }));
