"""The documents dialect."""
