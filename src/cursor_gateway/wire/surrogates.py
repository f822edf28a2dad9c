"""Repair text with halves of surrogate pairs, which UTF-8 cannot encode.

JSON can hold half a character: JavaScript programs cut strings anywhere, and an agent may split a character between two
deltas.
"""

from typing import Any


def has_surrogates(text: str) -> bool:
    """Whether it contains surrogates, as file names that are not UTF-8 do."""
    try:
        text.encode()  # much faster than a search for surrogates
    except UnicodeEncodeError:
        return True
    return False


def repair(text: str) -> str:
    """Surrogate pairs become their character; a lone surrogate becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if has_surrogates(text) else text


def repair_json(value: Any) -> Any:
    """The same for all strings in it."""
    match value:
        case str(text):
            return repair(text)
        case list(items):
            return [repair_json(item) for item in items]
        case dict(fields):
            return {repair(key): repair_json(field) for key, field in fields.items()}
        case _:
            return value


class PairJoiner:
    """Joins surrogate pairs that are split between two texts."""

    def __init__(self) -> None:
        self.half = ""  # a high surrogate at the end of the last text

    def push(self, text: str, /) -> str:
        """The part that is complete."""
        text = self.half + text
        self.half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return repair(text.removesuffix(self.half))

    def flush(self) -> str:
        """The other half does not follow."""
        half, self.half = self.half, ""
        return "\ufffd" if half else ""
