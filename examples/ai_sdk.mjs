// The AI SDK with Cursor's agent as its model, and a tool that runs here: `node ai_sdk.mjs "Is it warm in Paris?"`
// When the agent calls the tool, the run pauses, the AI SDK runs the tool, and the same run continues.
// Needs `npm install ai @ai-sdk/openai-compatible zod`, and Node 22.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const url = process.env.CURSOR_GATEWAY_URL ?? "http://127.0.0.1:8787";
const cursor = createOpenAICompatible({
  name: "cursor",
  baseURL: `${url}/v1`,
  apiKey: process.env.CURSOR_GATEWAY_API_KEY ?? "any",
});

const temperature = tool({
  description: "The temperature in a city, in °C.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    console.log(`(looking up ${city})`);
    return { Paris: "21", Oslo: "9" }[city] ?? "unknown";
  },
});

const { textStream } = streamText({
  model: cursor("auto"),
  prompt: process.argv.slice(2).join(" "),
  tools: { temperature },
  stopWhen: isStepCount(10),
});
for await (const text of textStream) process.stdout.write(text);
console.log();
