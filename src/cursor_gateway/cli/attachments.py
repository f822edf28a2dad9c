"""The images that a prompt names: paths, as they are typed, completed, or dropped on a terminal window."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_QUOTED = r"'[^'\n]+'|\"[^\"\n]+\""
_WORDS = re.compile(rf"@?(?:{_QUOTED}|(?:\\.|[^\s\\])+)")
_PASTED = re.compile(r"\[image \d+\]")


def images_in(text: str, folder: Path, pasted: Mapping[str, bytes]) -> list[Path | bytes]:
    """The files that exist, and what was pasted; each once, in their order."""
    found: dict[str, Path | bytes] = {}
    for match in _PASTED.finditer(text):
        if match[0] in pasted:
            found[match[0]] = pasted[match[0]]
    for path in _paths(text):
        with suppress(OSError, RuntimeError):  # a name that is too long, or a home directory that does not exist
            whole = folder / path.expanduser()
            if whole.is_file():
                found.setdefault(str(whole), whole)
    return list(found.values())


def _paths(text: str) -> Iterator[Path]:
    for match in _WORDS.finditer(text):
        word = match[0].removeprefix("@")
        is_quoted = word[:1] in ("'", '"')
        word = word[1:-1] if is_quoted else re.sub(r"\\(.)", r"\1", word).rstrip(".,;:!?)")
        if word.startswith("file://"):
            word = unquote(word.removeprefix("file://").removeprefix("localhost"))
        if word.lower().endswith(_ENDINGS) and "\0" not in word:
            yield Path(word)
