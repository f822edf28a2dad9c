"""Cursor's ACP server as a source."""
