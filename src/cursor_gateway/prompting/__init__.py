"""Turn messages into one prompt."""
