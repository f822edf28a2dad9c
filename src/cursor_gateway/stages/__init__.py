"""Pure stages: items in, items out."""
