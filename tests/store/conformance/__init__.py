"""The contract of `SqlStore`, as laws that every engine obeys.

A law is an async function that gets an empty history. An engine's test module runs all of `LAWS`, each with a function
that opens the history: every call gives another store of the same one, as another gateway would have it. Whoever opens
the stores closes them.
"""

from tests.store.conformance import conversations, runs
from tests.store.conformance.law import LAWS, Open

__all__ = ["LAWS", "Open", "conversations", "runs"]
