"""Cursor's agent as ordered, typed documents."""
