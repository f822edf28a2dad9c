"""What a measurement gives: the figure of a row, and what it was made of."""

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct


class Found(Struct, frozen=True):
    value: float
    details: str = ""


Part: TypeAlias = Iterator[tuple[str, Found]]  # by the names of the goals
