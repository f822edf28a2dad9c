// A chat over AG-UI, without a server in between: `node ag_ui_chat.mjs`, then a question a line.
// Any AG-UI client can use the same address; in a page, `allowed_origins` must contain the page's origin.
// Needs `npm install @ag-ui/client`.

import { HttpAgent } from "@ag-ui/client";
import { createInterface } from "node:readline";

const url = process.env.CURSOR_GATEWAY_URL ?? "http://127.0.0.1:8787";
const key = process.env.CURSOR_GATEWAY_API_KEY ?? "any";
const agent = new HttpAgent({ url: `${url}/v1/ag-ui`, headers: { authorization: `Bearer ${key}` } });

for await (const content of createInterface({ input: process.stdin })) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  await agent.runAgent(
    { forwardedProps: { cursor: { mode: "ask" } } },
    {
      onTextMessageContentEvent: ({ event }) => void process.stdout.write(event.delta),
      onTextMessageEndEvent: () => void process.stdout.write("\n"),
      onToolCallEndEvent: ({ toolCallName }) => void console.log(`(${toolCallName})`),
      onRunErrorEvent: ({ event }) => void console.error(event.message),
    },
  );
}
