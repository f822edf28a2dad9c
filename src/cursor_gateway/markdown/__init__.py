"""CommonMark, as far as fences need it."""
