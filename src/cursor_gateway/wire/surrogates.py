"""Repair text with halves of surrogate pairs, which UTF-8 cannot encode.

JSON can hold half a character: JavaScript programs cut strings anywhere, and an agent may split a character between two
deltas.
"""

from typing import Any


def repair(text: str) -> str:
    """Surrogate pairs become their character; a lone surrogate becomes U+FFFD."""
    try:
        text.encode()  # much faster than a search for surrogates
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


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


def join_halves(half: str, text: str) -> tuple[str, str]:
    """`half` is what the last call left. Returns the text that is complete, and a high surrogate left at its end."""
    text = half + text
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    return repair(text.removesuffix(half)), half
