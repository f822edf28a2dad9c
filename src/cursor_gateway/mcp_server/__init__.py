"""Cursor's agent as an MCP server: see docs/mcp.md."""
