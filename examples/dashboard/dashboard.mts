// A dashboard of a run in the terminal: `node build/dashboard.mjs "Add a login page"`
// The types come from `cursor-gateway schema --typescript > documents.ts`. They are closed unions, so the compiler knows the
// metadata of each type of document, and complains about a `switch` that forgets one.

import type { ChatResponse, Document, StreamEvent } from "./documents";

declare const process: { env: Record<string, string | undefined>; argv: string[]; exitCode?: number };

function describe(document: Document): string | undefined {
  switch (document.type) {
    case "file_edit":
      return `${document.metadata.operation} ${document.metadata.filePath}`;
    case "terminal_command":
      return `${document.metadata.command} -> ${document.metadata.exitCode}`;
    case "tool_call":
      return `${document.metadata.toolName}: ${document.metadata.result.status}`;
    case "plan":
      return `${document.metadata.title}, ${document.metadata.todos.length} to-dos`;
    case "error":
      return `${document.metadata.errorCode}: ${document.content}`;
    case "clarification":
      return document.metadata.questions.map((question) => question.text).join(" / ");
    case "todo_update":
      return document.metadata.todos.map((todo) => `${todo.id} ${todo.status}`).join(", ");
    case "text":
    case "code_block":
    case "code_reference":
    case "thinking":
      return undefined; // what the agent says; the dashboard shows what it does
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const whole = (rest + decoder.decode(part.value, { stream: true })).split("\n");
    rest = whole.pop() ?? "";
    yield* whole;
  }
}

const url = process.env.CURSOR_GATEWAY_URL ?? "http://127.0.0.1:8787";
const reply = await fetch(`${url}/v1/chat`, {
  method: "POST",
  headers: { "Content-Type": "application/json", Accept: "application/x-ndjson" },
  body: JSON.stringify({ message: process.argv.slice(2).join(" "), stream: true }),
});
if (!reply.ok || reply.body === null) throw new Error(`${reply.status}: ${await reply.text()}`);

for await (const line of lines(reply.body)) {
  const event = JSON.parse(line) as StreamEvent;
  if (event.type === "document_start") console.log(`… ${event.data.type}`);
  if (event.type === "done") {
    const answer = (await (await fetch(`${url}/v1/chat/${event.data.id}`)).json()) as ChatResponse;
    for (const document of answer.documents) {
      const description = describe(document);
      if (description !== undefined) console.log(`${document.type.padEnd(18)}${description}`);
    }
    const { status, usage, metadata } = answer;
    console.log(`${status} in ${metadata.duration_ms} ms, ${usage.totalTokens} tokens`);
    process.exitCode = status === "completed" ? 0 : 1;
  }
}
