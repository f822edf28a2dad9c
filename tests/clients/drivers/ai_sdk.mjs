// The AI SDK with a tool that it runs itself: `generateText`, or `streamText`, over each of the three APIs. With `turns`, the
// prompt is asked first, and then something else in the same conversation.

import { appendFileSync, readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const { url, prompt, way } = JSON.parse(readFileSync(0, "utf8"));
const [form, api] = way.split(" ");
const settings = { name: "gateway", baseURL: url, apiKey: "any" };
const providers = {
  chat: () => createOpenAICompatible({ ...settings, includeUsage: true })("auto"),
  responses: () => createOpenAI(settings).responses("auto"),
  messages: () => createAnthropic(settings)("auto"),
};
const options = {
  model: providers[api ?? "chat"](),
  messages: [{ role: "user", content: prompt }],
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
if (form === "turns") {
  const { responseMessages } = await generateText(options);
  options.messages.push(...responseMessages, { role: "user", content: `${prompt.split("\n")[0]} again` });
}
const result = form === "stream" ? streamText({ ...options, onError: fail }) : await generateText(options);
process.stdout.write(JSON.stringify(await result.text));
