"""Figures for the metrics, from modules that do not depend on how they are published."""

from msgspec import Struct

from cursor_gateway.store.health import StoreHealth


class Figure(Struct, frozen=True):
    name: str
    help: str
    value: float
    is_total: bool = False  # it only grows


def store_figures(health: StoreHealth) -> list[Figure]:
    return [
        Figure("store_errors", "Reads and writes of the history that failed.", health.errors, is_total=True),
        Figure("store_available", "0 while the history cannot be read or written.", 0 if health.problem else 1),
    ]
