// An MCP host in JavaScript: `@modelcontextprotocol/client`, or `@modelcontextprotocol/sdk` of the versions before. It calls
// `run` with the prompt, and fills each form with the first choices.

import { serve } from "./serving.mjs";

const packages = {
  client: async () => {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    return { Client, StreamableHTTPClientTransport, StdioClientTransport, elicitation: "elicitation/create" };
  },
  sdk: async () => {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    return { Client, StreamableHTTPClientTransport, StdioClientTransport, elicitation: ElicitRequestSchema };
  },
};

const first = (field) => field.oneOf?.[0].const ?? field.enum?.[0];

await serve(async ({ url, prompt, way }) => {
  const { name, key, command, env, options } = JSON.parse(way);
  const { Client, StreamableHTTPClientTransport, StdioClientTransport, elicitation } = await packages[name]();
  const transport = command
    ? new StdioClientTransport({ command: command[0], args: command.slice(1), env })
    : new StreamableHTTPClientTransport(new URL(url.replace(/\/v1$/, "/mcp")), {
        requestInit: { headers: key ? { authorization: `Bearer ${key}` } : {} },
      });
  const capabilities = { elicitation: {} };
  const client = new Client({ name: "test", version: "1" }, { capabilities, ...options });
  const asked = [];
  const lines = [];
  client.setRequestHandler(elicitation, async ({ params }) => {
    asked.push(params.message);
    const fields = Object.entries(params.requestedSchema.properties);
    const content = Object.fromEntries(fields.map(([id, field]) => [id, first(field)]).filter(([, value]) => value));
    return { action: "accept", content };
  });
  await client.connect(transport);
  try {
    const { tools } = await client.listTools();
    const onprogress = ({ message }) => lines.push(message);
    const call = { name: "run", arguments: { prompt } };
    const result =
      name === "sdk" ? await client.callTool(call, undefined, { onprogress }) : await client.callTool(call, { onprogress });
    const version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? "";
    return { tools: tools.map((tool) => tool.name), result: result.structuredContent, asked, lines, version };
  } finally {
    await client.close();
  }
});
