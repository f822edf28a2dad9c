// The AI SDK with a tool that it runs itself: `generateText`, or `streamText`.

import { appendFileSync, readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const { url, prompt, way } = JSON.parse(readFileSync(0, "utf8"));
const options = {
  model: createOpenAICompatible({ name: "gateway", baseURL: url, apiKey: "any", includeUsage: true })("auto"),
  prompt,
  maxRetries: 0,
  stopWhen: isStepCount(20),
  tools: {
    get_weather: tool({
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        appendFileSync("calls.txt", `${city}\n`);
        return JSON.parse(readFileSync("weather.json", "utf8"))[city];
      },
    }),
  },
};

const fail = ({ error }) => {
  throw error;
};
const result = way === "stream" ? streamText({ ...options, onError: fail }) : await generateText(options);
process.stdout.write(JSON.stringify(await result.text));
