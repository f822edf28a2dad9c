"""The AI SDK's UI messages."""
