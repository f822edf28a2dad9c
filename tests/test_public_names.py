"""What the package promises to its users: these names, and an example that runs."""

import doctest
import subprocess
import sys
from operator import attrgetter
from types import ModuleType

import pytest

import cursor_gateway

PUBLIC: list[str] = attrgetter("__all__")(cursor_gateway)  # computed: type checkers do not know it


def test_the_public_names_are_exactly_what_can_be_imported() -> None:
    importable = {
        name
        for name in dir(cursor_gateway)
        if not name.startswith("_") and not isinstance(getattr(cursor_gateway, name), ModuleType)
    }
    assert importable == set(PUBLIC)


@pytest.mark.parametrize("use", ["from cursor_gateway import Client", "from cursor_gateway import *; Client"])
def test_a_name_can_be_the_first_that_is_used(use: str) -> None:
    subprocess.run([sys.executable, "-c", use], check=True)


def test_other_names_are_unknown_as_in_any_module() -> None:
    assert not hasattr(cursor_gateway, "Clint")
    assert not hasattr(cursor_gateway, "__wrapped__")
    with pytest.raises(AttributeError, match="module 'cursor_gateway' has no attribute 'Clint'"):
        _ = cursor_gateway.Clint  # type: ignore[attr-defined] # that is the point


def test_the_public_names_are_listed_once_and_in_order() -> None:
    assert sorted(set(PUBLIC)) == PUBLIC


def test_the_example_in_the_documentation_runs() -> None:
    failed, tried = doctest.testmod(cursor_gateway)
    assert tried > 0
    assert failed == 0
