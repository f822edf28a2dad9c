// The AI SDK with a tool that it runs itself: `generateText`, or `streamText`, over each of the three APIs. With `turns`, the
// prompt is asked first, and then something else in the same conversation.

import { appendFileSync, readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";
import { serve } from "./serving.mjs";

const models = {
  chat: (settings) => createOpenAICompatible({ ...settings, includeUsage: true })("auto"),
  responses: (settings) => createOpenAI(settings).responses("auto"),
  messages: (settings) => createAnthropic(settings)("auto"),
};
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      appendFileSync("calls.txt", `${city}\n`);
      return JSON.parse(readFileSync("weather.json", "utf8"))[city];
    },
  }),
};

await serve(async ({ url, prompt, way }) => {
  const [form, api] = way.split(" ");
  const model = models[api ?? "chat"]({ name: "gateway", baseURL: url, apiKey: "any" });
  const messages = [{ role: "user", content: prompt }];
  const options = { model, messages, tools, maxRetries: 0, stopWhen: isStepCount(20) };
  if (form === "turns") {
    const { responseMessages } = await generateText(options);
    messages.push(...responseMessages, { role: "user", content: `${prompt.split("\n")[0]} again` });
  }
  if (form !== "stream") return (await generateText(options)).text;
  let failure;
  const result = streamText({ ...options, onError: ({ error }) => (failure = error) });
  const text = await result.text;
  if (failure) throw failure;
  return text;
});
