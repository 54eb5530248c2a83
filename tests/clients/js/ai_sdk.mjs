// What is tried with the AI SDK, whatever provider makes the model.

import { Output, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { ADD_SCHEMA, add } from "./server.mjs";

// Warnings would be printed between what the program says.
globalThis.AI_SDK_LOG_WARNINGS = false;

const tools = { add: tool({ inputSchema: jsonSchema(ADD_SCHEMA), execute: add }) };

// What the steps of a loop say.
const told = (steps) =>
  steps.map((step) => ({
    ...(step.reasoningText && { reasoning: step.reasoningText }),
    ...(step.toolCalls.length && { calls: step.toolCalls.map((call) => [call.toolName, call.input]) }),
    ...(step.toolResults.length && { results: step.toolResults.map((result) => result.output) }),
    ...(step.text && { text: step.text }),
    finish: step.finishReason,
  }));

// A loop, and another after it: the second request holds all that was said in the first.
export async function conversation(model, providerOptions) {
  const settings = { model, tools, stopWhen: stepCountIs(5), maxRetries: 0, providerOptions };
  const messages = [{ role: "user", content: "think, then add" }];
  const first = await generateText({ ...settings, messages });
  messages.push(...first.responseMessages, { role: "user", content: "add on" });
  const second = await generateText({ ...settings, messages });
  return [first.text, second.text];
}

export function trials(model, more) {
  const asking = (prompt) => ({ model, prompt, maxRetries: 0 });
  const looping = (prompt) => ({ ...asking(prompt), tools, stopWhen: stepCountIs(5) });
  const streamed = async (params) => {
    let failure;
    const result = streamText({ ...params, onError: ({ error }) => (failure = error) });
    await result.consumeStream();
    if (failure) throw failure;
    return told(await result.steps);
  };
  return {
    text: async () => told((await generateText(asking("hi"))).steps),
    "text, streamed": () => streamed(asking("hi")),
    reasoning: async () => told((await generateText(asking("think"))).steps),
    "reasoning, streamed": () => streamed(asking("think")),
    loop: async () => told((await generateText(looping("add both pairs"))).steps),
    "loop, streamed": () => streamed(looping("add both pairs")),
    "loop with reasoning": async () => told((await generateText(looping("think, then add"))).steps),
    "loop with reasoning, streamed": () => streamed(looping("think, then add")),
    object: async () => {
      const output = Output.object({ schema: z.object({ city: z.string(), degrees: z.number() }) });
      return (await generateText({ ...asking("weather as JSON"), output })).output;
    },
    conversation: () => conversation(model),
    ...more,
  };
}
