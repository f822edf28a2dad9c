"""Random damages of the files of a history, by number: bits, pages, and the files themselves."""

import random
from collections.abc import Callable
from pathlib import Path

from cursor_gateway.store.sqlite.opening import FILE

PAGE = 4096


def _flip_bits(data: bytearray, chosen: random.Random) -> None:
    for _ in range(chosen.choice([1, 1, 8, 200])):
        place = chosen.randrange(len(data))
        data[place] ^= 1 << chosen.randrange(8)


def _flip_bits_of_the_header(data: bytearray, chosen: random.Random) -> None:
    for _ in range(chosen.choice([1, 3])):
        data[chosen.randrange(100)] ^= 1 << chosen.randrange(8)


def _flip_bits_of_the_schema(data: bytearray, chosen: random.Random) -> None:
    for _ in range(chosen.choice([1, 20])):
        data[chosen.randrange(100, PAGE)] ^= 1 << chosen.randrange(8)


def _pages(data: bytearray, chosen: random.Random, most: int) -> list[int]:
    pages = range(0, len(data) - PAGE + 1, PAGE)
    return chosen.sample(pages, min(len(pages), chosen.randrange(1, most)))


def _zero_pages(data: bytearray, chosen: random.Random) -> None:
    for place in _pages(data, chosen, 6):
        data[place : place + PAGE] = bytes(PAGE)


def _randomize_pages(data: bytearray, chosen: random.Random) -> None:
    for place in _pages(data, chosen, 6):
        data[place : place + PAGE] = chosen.randbytes(PAGE)


def _swap_pages(data: bytearray, chosen: random.Random) -> None:
    for _ in range(chosen.choice([1, 1, 4])):
        one, other = chosen.sample(range(0, len(data) - PAGE + 1, PAGE), 2)
        data[one : one + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[one : one + PAGE]


def _truncate(data: bytearray, chosen: random.Random) -> None:
    del data[chosen.choice([0, 1, 99, 100, PAGE, chosen.randrange(len(data)), len(data) // PAGE // 2 * PAGE]) :]


def _insert_bytes(data: bytearray, chosen: random.Random) -> None:
    place = chosen.randrange(len(data))
    data[place:place] = chosen.randbytes(chosen.choice([1, 100, PAGE]))


_OF_BYTES: list[Callable[[bytearray, random.Random], None]] = [
    _flip_bits,
    _flip_bits,
    _flip_bits_of_the_header,
    _flip_bits_of_the_schema,
    _zero_pages,
    _randomize_pages,
    _swap_pages,
    _truncate,
    _insert_bytes,
]


def damage(folder: Path, number: int) -> str:
    """Returns its name. The same number does the same to the same files. A WAL or shared memory may be missing."""
    chosen = random.Random(number)
    path = folder / FILE
    others = [file for end in ("-wal", "-shm") if (file := folder / f"{FILE}{end}").exists()]
    if others and chosen.random() < 0.3:
        path = chosen.choice(others)
    if chosen.random() < 0.04:
        path.unlink()
        path.mkdir()
        return f"{number}: {path.name} is a folder"
    how = chosen.choice(_OF_BYTES)
    data = bytearray(path.read_bytes())
    if len(data) < 2 * PAGE:  # an empty log
        data += bytes(2 * PAGE - len(data))
    how(data, chosen)
    path.write_bytes(data)
    return f"{number}: {how.__name__[1:].replace('_', ' ')} of {path.name}"
