"""The caller's tools as an MCP server that an agent on this machine can reach."""
