// OpenAI's and Anthropic's SDKs for JavaScript with their own retries: one question, and what the program's user sees.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { serve } from "./serving.mjs";

await serve(async ({ url, prompt, way }) => {
  const messages = [{ role: "user", content: prompt }];
  if (way === "messages") {
    const client = new Anthropic({ baseURL: url.replace(/\/v1$/, ""), apiKey: "any" });
    return await client.messages.stream({ model: "auto", max_tokens: 4096, messages }).finalText();
  }
  const client = new OpenAI({ baseURL: url, apiKey: "any" });
  if (way === "responses") {
    return (await client.responses.create({ model: "auto", input: prompt })).output_text;
  }
  const answer = await client.chat.completions.create({ model: "auto", messages, stream: true });
  let text = "";
  for await (const chunk of answer) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  return text;
});
