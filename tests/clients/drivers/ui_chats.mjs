// A page's chat, with the real clients of both protocols and no server of its own: `prompt` is JSON, what a person does.

import { HttpAgent } from "@ag-ui/client";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";
import { appendFileSync, readFileSync } from "node:fs";
import { serve } from "./serving.mjs";
import { Chat } from "./ui_chat.mjs";

const weather = (city) => {
  appendFileSync("calls.txt", `${city}\n`);
  return JSON.parse(readFileSync("weather.json", "utf8"))[city];
};
const tools = [
  {
    name: "get_weather",
    description: "The weather in a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const first = ({ id, options }) => ({ questionId: id, selectedOptionIds: [options[0].id] });

const aiSdk = async (url, { prompts, id, offers = false, cursor, approves, again }) => {
  const body = { cursor, ...(offers ? { tools } : {}) };
  const transport = new DefaultChatTransport({ api: `${url}/ai-sdk`, body });
  const seen = { errors: [], ids: new Set() };
  const chat = new Chat({
    id,
    transport,
    onError: ({ message }) => seen.errors.push(message),
    onToolCall: async ({ toolCall: { toolName, toolCallId, input } }) => {
      const output =
        toolName === "get_weather"
          ? { is: weather(input.city) }
          : { answers: input.questions.map(first) };
      void chat.addToolOutput({ tool: toolName, toolCallId, output }); // awaited, it would wait for itself
    },
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithToolCalls(state) || lastAssistantMessageIsCompleteWithApprovalResponses(state),
  });
  const settled = async () => {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      if (chat.status === "submitted" || chat.status === "streaming") continue;
      const asked = chat.lastMessage?.parts.find(({ state }) => state === "approval-requested");
      if (!asked) return;
      await chat.addToolApprovalResponse({ id: asked.approval.id, approved: approves });
    }
  };
  for (const text of prompts) {
    await chat.sendMessage({ text });
    await settled();
  }
  if (again === "regenerate") await chat.regenerate();
  if (again === "repeat") {
    const messages = chat.messages.slice(0, -1);
    const sent = { chatId: chat.id, messages, trigger: "submit-message", messageId: undefined };
    const stream = await transport.sendMessages(sent);
    for await (const chunk of stream) if (chunk.type === "start") seen.repeated = chunk.messageMetadata.chatId;
  }
  const messages = chat.messages.map(({ id, role, metadata, parts }) => ({ id, role, metadata, parts }));
  return { messages, errors: seen.errors, repeated: seen.repeated };
};

const resumed = async (url, { prompts, id, cursor }) => {
  // The page is closed in the middle of the answer, and opened again with the messages that it had stored.
  const transport = new DefaultChatTransport({ api: `${url}/ai-sdk`, body: { cursor } });
  const first = new Chat({ id, transport });
  const sending = first.sendMessage({ text: prompts[0] });
  const said = () => first.lastMessage?.role === "assistant" && first.lastMessage.parts.some(({ type }) => type === "text");
  while (!said()) await new Promise((resolve) => setTimeout(resolve, 20));
  await first.stop();
  await sending;
  const second = new Chat({ id, transport });
  second.messages = first.messages.slice(0, 1);
  await second.resumeStream();
  const none = await transport.reconnectToStream({ chatId: id });
  const text = second.lastMessage.parts.filter(({ type }) => type === "text").map(({ text }) => text);
  return { text: text.join(""), chatId: second.lastMessage.metadata.chatId, none, before: first.messages.at(-1).metadata.chatId };
};

const agUi = async (url, { prompts, id, offers = false, cursor, approves, again }) => {
  const agent = new HttpAgent({ url: `${url}/ag-ui`, threadId: id });
  const forwardedProps = { cursor };
  const errors = [];
  const outcomes = [];
  const subscriber = {
    onRunErrorEvent: ({ event }) => void errors.push(event.message),
    onRunFinishedEvent: ({ event }) => void outcomes.push(event.outcome),
  };
  let runId;
  const run = async (more) => {
    runId = `run-${outcomes.length}-${id}`;
    await agent.runAgent({ runId, forwardedProps, tools: offers ? tools : [], ...more }, subscriber).catch(({ message }) => errors.push(message));
  };
  for (const [number, content] of prompts.entries()) {
    agent.addMessage({ id: `user-${number}`, role: "user", content });
    await run({});
    for (;;) {
      const outcome = outcomes.at(-1);
      if (outcome?.type === "interrupt") {
        const given = ({ responseSchema }) =>
          responseSchema.properties.answers
            ? { answers: questionsOf(agent).map(first) }
            : { approved: approves };
        const entry = (one) => ({ interruptId: one.id, status: "resolved", payload: given(one) });
        await run({ resume: outcome.interrupts.map(entry) });
      } else if (outcome?.pendingToolCallIds?.length) {
        for (const toolCallId of outcome.pendingToolCallIds) {
          const calls = agent.messages.flatMap(({ toolCalls }) => toolCalls ?? []);
          const { city } = JSON.parse(calls.find(({ id }) => id === toolCallId).function.arguments);
          agent.addMessage({ id: `result-${toolCallId}`, role: "tool", toolCallId, content: weather(city) });
        }
        await run({});
      } else break;
    }
  }
  if (again === "repeat") {
    const before = agent.messages;
    agent.messages = before.slice(0, 1);
    await agent.runAgent({ runId, forwardedProps }, subscriber);
  }
  return { messages: agent.messages, errors, outcomes };
};

const questionsOf = (agent) => {
  const calls = agent.messages.flatMap(({ toolCalls }) => toolCalls ?? []).filter(({ function: { name } }) => name === "ask_question");
  return JSON.parse(calls.at(-1).function.arguments).questions;
};

const chats = { "ai-sdk": aiSdk, "ag-ui": agUi, resumed };
await serve(({ url, prompt, way }) => chats[way](url, JSON.parse(prompt)));
