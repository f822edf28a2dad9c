"""A first message in, the title of its conversation out."""

_LONGEST = 80
_LOOKED_AT = 10_000  # characters: a message may be a whole file
_UNTITLED = "Untitled"


def title_of(text: str) -> str:
    """The first line with text, white space collapsed, cut at a word boundary."""
    start = text.lstrip()[:_LOOKED_AT]
    lines = (" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in start.splitlines())
    line = next((line for line in lines if line), _UNTITLED)
    if len(line) <= _LONGEST:
        return line
    words, _, _ = line[:_LONGEST].rpartition(" ")
    return f"{words or line[: _LONGEST - 1]}…"
