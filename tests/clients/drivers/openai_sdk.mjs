// OpenAI's SDK for JavaScript: a response in the background is cancelled when the agent has begun to write.

import OpenAI from "openai";
import { serve } from "./serving.mjs";

await serve(async ({ url, prompt }) => {
  const client = new OpenAI({ baseURL: url, apiKey: "any", maxRetries: 0 });
  const stream = await client.responses.create({ model: "auto", input: prompt, background: true, stream: true });
  let id;
  for await (const event of stream) {
    id ??= event.response?.id;
    if (event.type === "response.output_text.delta") break;
  }
  return (await client.responses.cancel(id)).status;
});
