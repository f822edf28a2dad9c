"""What is fuzzed: bytes in; nothing out, or an exception where a law is broken."""

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias
from zlib import crc32

from msgspec import Struct

from tests.strategies import Sliced, chunks, cut

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"  # inputs that reach what no other reaches; generated here
FOUND = HERE / "found"  # inputs that once broke a law

_DEEPEST = 120  # levels: a payload's 100, and those of the documents around it

Shape: TypeAlias = Literal["bytes", "text", "json", "lines"]  # how inputs are changed; `lines` are JSON, one a line


class Target(Struct, frozen=True):
    name: str
    holds: str  # the law, in a sentence
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    shape: Shape
    longest: int = 4096  # bytes of an input


def dice(data: bytes) -> random.Random:
    """The same for the same input, so that a case can be repeated."""
    return random.Random(crc32(data))


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def assert_flat(value: object) -> None:
    """Readers have limits, and so has whoever writes it again one level deeper: what is nested absurdly is refused."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [child for children in inner for child in children]
    assert not level, "nested too deeply"


def cuttings(whole: Sliced, roll: random.Random) -> Iterator[list[Sliced]]:
    """Ways for it to come in pieces: one by one, in small ones, in any, and with empty ones between."""
    yield chunks(whole, 1)
    yield chunks(whole, roll.randint(2, 7))
    yield cut(whole, [roll.randrange(len(whole) + 1) for _ in range(4)] * 2)
