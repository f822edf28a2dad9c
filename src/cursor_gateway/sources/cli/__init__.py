"""Cursor's command line as a source."""
