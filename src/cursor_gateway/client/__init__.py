"""The Python client of a gateway: see docs/client.md."""
