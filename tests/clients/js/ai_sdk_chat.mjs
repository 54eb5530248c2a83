// The AI SDK with its provider for OpenAI, on Chat Completions.

import { createOpenAI } from "@ai-sdk/openai";

import { trials } from "./ai_sdk.mjs";
import { BASE_URL, MODEL, report } from "./server.mjs";

await report(trials(createOpenAI({ baseURL: BASE_URL, apiKey: "none" }).chat(MODEL)));
