// Recorded streams of the two UI protocols, read by their own clients, which check every chunk: bytes in, the message out.
// `prompt` is JSON: the replies of one run, and the size of the pieces in which they arrive.

import { HttpAgent } from "@ag-ui/client";
import { DefaultChatTransport } from "ai";
import { serve } from "./serving.mjs";
import { Chat } from "./ui_chat.mjs";

const response = (bytes, size) => {
  let place = 0;
  const pull = (controller) => {
    if (place >= bytes.length) return controller.close();
    controller.enqueue(bytes.subarray(place, (place += size)));
  };
  return new Response(new ReadableStream({ pull }), { headers: { "content-type": "text/event-stream" } });
};

const aiSdk = async ({ replies, size }) => {
  const rest = replies.map((reply) => new TextEncoder().encode(reply));
  const seen = {};
  const transport = new DefaultChatTransport({ fetch: async () => response(rest.shift(), size) });
  const chat = new Chat({ transport, onError: (error) => (seen.error = error.message), onFinish: (end) => (seen.end = end) });
  await chat.sendMessage({ text: "ask" });
  while (rest.length) {
    const before = rest.length;
    await chat.sendMessage(); // the answer continues
    if (rest.length === before) throw new Error("It was not asked.");
  }
  if (seen.end?.isDisconnect) throw new Error("The stream was cut.");
  const { parts } = chat.messages.at(-1);
  const text = parts.filter(({ type }) => type === "text").map(({ text }) => text);
  const reasoning = parts.filter(({ type }) => type === "reasoning").map(({ text }) => text);
  const open = parts.filter(({ state }) => state === "streaming").length;
  return { text: text.join(""), reasoning: reasoning.join(""), open, error: seen.error, parts: parts.map(({ type }) => type) };
};

const agUi = async ({ replies, size }) => {
  const rest = replies.map((reply) => new TextEncoder().encode(reply));
  const agent = new HttpAgent({ url: "http://gateway", fetch: async () => response(rest.shift(), size) });
  let error;
  while (rest.length) {
    const before = rest.length;
    const subscriber = { onRunErrorEvent: ({ event }) => void (error = event.message) };
    await agent.runAgent(agent.pendingInterrupts?.length ? { resume: answers(agent.pendingInterrupts) } : {}, subscriber);
    if (rest.length === before) throw new Error("It was not asked.");
  }
  const said = (role) => agent.messages.filter((message) => message.role === role).map(({ content }) => content ?? "");
  return { text: said("assistant").join(""), reasoning: said("reasoning").join(""), error, parts: agent.messages.map(({ role }) => role) };
};

const answers = (interrupts) => interrupts.map(({ id }) => ({ interruptId: id, status: "cancelled" }));

const read = { "ai-sdk": aiSdk, "ag-ui": agUi };
await serve(({ prompt, way }) => read[way](JSON.parse(prompt)));
