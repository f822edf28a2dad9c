// Anthropic's SDK for JavaScript, in the loop that its documentation shows: `create`, or `stream`.

import { appendFileSync, readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import { serve } from "./serving.mjs";

const tools = [
  {
    name: "get_weather",
    description: "The weather in a city.",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const weather = ({ city }) => {
  appendFileSync("calls.txt", `${city}\n`);
  return JSON.parse(readFileSync("weather.json", "utf8"))[city];
};

await serve(async ({ url, prompt, way }) => {
  const client = new Anthropic({ baseURL: url.replace(/\/v1$/, ""), apiKey: "any", maxRetries: 0 });
  const messages = [{ role: "user", content: prompt }];
  for (;;) {
    const options = { model: "auto", max_tokens: 4096, messages, tools };
    const message =
      way === "stream" ? await client.messages.stream(options).finalMessage() : await client.messages.create(options);
    if (message.stop_reason !== "tool_use") {
      const text = message.content.filter(({ type }) => type === "text").map((block) => block.text);
      return text.join("");
    }
    const results = message.content
      .filter(({ type }) => type === "tool_use")
      .map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: weather(input) }));
    messages.push({ role: "assistant", content: message.content }, { role: "user", content: results });
  }
});
