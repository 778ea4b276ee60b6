// The smallest server with the SDK for TypeScript, as in its documentation.

import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const hello = { name: "hello", inputSchema: { type: "object", properties: { name: { type: "string" } } } };
const server = new Server({ name: "peer", version: "1" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [hello] }));
server.setRequestHandler(CallToolRequestSchema, () => ({ content: [{ type: "text", text: "hello" }] }));
await server.connect(new StdioServerTransport());
