"""The history in a file of SQLite."""
