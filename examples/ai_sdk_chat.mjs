// A chat with the AI SDK, without a server in between: `node ai_sdk_chat.mjs`, then a question a line.
// `transport` is what `useChat({ transport })` takes in a page; there, `allowed_origins` must contain the page's origin.
// Needs `npm install ai`, and Node 22.

import { DefaultChatTransport, readUIMessageStream } from "ai";
import { createInterface } from "node:readline";

const url = process.env.CURSOR_GATEWAY_URL ?? "http://127.0.0.1:8787";
const key = process.env.CURSOR_GATEWAY_API_KEY ?? "any";
const transport = new DefaultChatTransport({
  api: `${url}/v1/ai-sdk`,
  headers: { authorization: `Bearer ${key}` },
  body: { cursor: { mode: "ask" } },
});

const chatId = crypto.randomUUID();
const messages = [];
for await (const text of createInterface({ input: process.stdin })) {
  messages.push({ id: crypto.randomUUID(), role: "user", parts: [{ type: "text", text }] });
  const stream = await transport.sendMessages({ chatId, messages, trigger: "submit-message" });
  let answer;
  for await (answer of readUIMessageStream({ stream }));
  for (const part of answer.parts) {
    if (part.type === "text") console.log(part.text);
    if (part.type === "dynamic-tool") console.log(`(${part.toolName} ${JSON.stringify(part.input)})`);
  }
  messages.push(answer);
}
