"""Cursor's Python SDK as a source."""
