"""A figure for the metrics, from a module that does not depend on how they are published."""

from msgspec import Struct


class Figure(Struct, frozen=True):
    name: str
    help: str
    value: float
    is_total: bool = False  # it only grows
