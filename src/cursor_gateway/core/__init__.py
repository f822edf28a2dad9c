"""Meaning without I/O: what an agent does, and the documents readers see of it."""
