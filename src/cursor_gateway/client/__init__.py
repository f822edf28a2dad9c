"""A gateway, from Python: see docs/client.md."""
