"""Show a run to people: in a terminal, on a page, or as a file."""
