"""Framing without meaning: bytes to lines, values to Server-Sent Events and back."""
