"""Cursor's agent as an ACP agent for editors: see docs/acp.md."""
