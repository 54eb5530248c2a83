// The AI SDK with its provider for servers that follow Open Responses.

import { createOpenResponses } from "@ai-sdk/open-responses";

import { trials } from "./ai_sdk.mjs";
import { BASE_URL, MODEL, report } from "./server.mjs";

const turnlog = createOpenResponses({ name: "turnlog", url: `${BASE_URL}/responses` });

await report(trials(turnlog(MODEL)));
