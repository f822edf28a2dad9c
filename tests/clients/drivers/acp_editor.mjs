// An editor with the official ACP library: a plan of sessions and prompts as JSON on stdin; all that the agent wrote, and
// the results of the requests, as JSON on stdout.

import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";

const { command, cwd, prompts, servers, load } = JSON.parse(await text(process.stdin));
const agent = spawn(command[0], command.slice(1), { cwd, stdio: ["pipe", "pipe", "inherit"] });
const lines = [];
const updates = [];
const results = {};

// What the agent writes is kept as it is, and passed on.
const seen = new TransformStream({
  transform(chunk, out) {
    lines.push(Buffer.from(chunk).toString("base64"));
    out.enqueue(chunk);
  },
});
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout).pipeThrough(seen));

const app = client({ name: "editor" })
  .onNotification(methods.client.session.update, ({ params }) => updates.push(params.update))
  .onRequest(methods.client.session.requestPermission, ({ params }) => ({
    outcome: { outcome: "selected", optionId: params.options[0].optionId },
  }))
  .onRequest(methods.client.elicitation.create, ({ params }) => {
    const [[id, field]] = Object.entries(params.requestedSchema.properties);
    return { action: "accept", content: { [id]: field.oneOf[0].const } };
  });

const until = async (condition) => {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
};

await app.connectWith(stream, async (context) => {
  const capabilities = { elicitation: { form: {} }, session: { notices: {} } };
  results.initialize = await context.request(methods.agent.initialize, {
    protocolVersion: 1,
    clientCapabilities: capabilities,
    clientInfo: { name: "editor", version: "1" },
  });
  let sessionId = load;
  if (load) {
    results.load = await context.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  } else {
    results.new = await context.request(methods.agent.session.new, { cwd, mcpServers: servers });
    sessionId = results.new.sessionId;
  }
  results.prompts = [];
  for (const { mode, model, cancels, prompt } of prompts) {
    if (mode) await context.request(methods.agent.session.setMode, { sessionId, modeId: mode });
    if (model) {
      const wanted = { sessionId, configId: "model", value: model };
      results.model = await context.request(methods.agent.session.setConfigOption, wanted);
    }
    const before = updates.length;
    const answering = context.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text: prompt }] });
    if (cancels) {
      await until(() => updates.length > before);
      await context.notify(methods.agent.session.cancel, { sessionId });
    }
    results.prompts.push(await answering);
  }
  results.list = await context.request(methods.agent.session.list, { cwd });
});
agent.stdin.end();
results.status = await new Promise((resolve) => agent.on("exit", resolve));
process.stdout.write(JSON.stringify({ lines, updates, results }));
process.exit(0);
