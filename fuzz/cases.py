"""A target and an input in; how the input breaks the target's law, and the smallest input that does so too, out."""

import random
import traceback
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from fuzz.target import FOUND, Target

_TRIES = 600  # to make a case smaller


class Breach(Struct, frozen=True):
    """The same for inputs that fail in the same way."""

    error: str  # its type
    place: str  # file:line

    @property
    def name(self) -> str:
        return f"{self.error}-{Path(self.place.replace(':', '-')).name.replace('.py', '')}"


def breach_of(target: Target, data: bytes) -> Breach | None:
    try:
        target.run(data)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it should not have been raised
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "cursor_gateway" in frame.filename or "fuzz" in frame.filename]
        last = (ours or frames)[-1]
        return Breach(type(error).__name__, f"{Path(last.filename).name}:{last.lineno}")
    return None


def reduced(target: Target, data: bytes, breach: Breach) -> bytes:
    """Bytes are left out as long as the same goes wrong."""
    roll, size, tries = random.Random(0), max(1, len(data) // 2), 0
    while tries < _TRIES and data:
        smaller = None
        for start in _starts(len(data), size, roll):
            tries += 1
            candidate = data[:start] + data[start + size :]
            if breach_of(target, candidate) == breach:
                smaller = candidate
                break
            if tries >= _TRIES:
                break
        if smaller is not None:
            data = smaller
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return data


def _starts(length: int, size: int, roll: random.Random) -> list[int]:
    starts = list(range(0, length, size))
    roll.shuffle(starts)
    return starts


def keep(target: Target, data: bytes, breach: Breach) -> Path:
    folder = FOUND / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / breach.name
    path.write_bytes(data)
    return path


def corpus_name(data: bytes) -> str:
    return sha256(data).hexdigest()[:12]
