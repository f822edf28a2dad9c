"""Functions that prove something in; the table of faults, by group, out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from chaos.place import Place

Proof: TypeAlias = "Callable[[Place], str]"

# The report keeps this order.
GROUPS = {
    "chaos.clients": "Clients that disconnect",
    "chaos.agents": "Agents that misbehave",
    "chaos.host": "Host failures",
    "chaos.load": "Load and abuse",
    "chaos.freezes": "Attempts to freeze the gateway",
}


class Fault(Struct, frozen=True):
    name: str  # "the client leaves before the first byte"
    provoked: str  # how, in one sentence
    holds: str  # what must hold, in one sentence
    prove: Proof  # raises when it does not hold; returns the proof, one sentence with figures
    seconds: float = 60  # longer than that is red


class Skipped(Exception):
    """It cannot be provoked here. The message says why; the report shows it, and never as green."""


_FAULTS: dict[str, list[Fault]] = {}


def fault(name: str, *, provoked: str, holds: str, seconds: float = 60) -> Callable[[Proof], Proof]:
    """Adds a function to its module's group, in the order of the file."""

    def add(prove: Proof) -> Proof:
        _FAULTS.setdefault(prove.__module__, []).append(Fault(name, provoked, holds, prove, seconds))
        return prove

    return add


def faults_of(module: str) -> list[Fault]:
    importlib.import_module(module)
    return _FAULTS[module]
