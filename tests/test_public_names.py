"""What the package promises to its users: these names, and an example that runs."""

import doctest
from types import ModuleType

import cursor_gateway


def test_the_public_names_are_exactly_what_can_be_imported() -> None:
    importable = {
        name
        for name, value in vars(cursor_gateway).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert importable == set(cursor_gateway.__all__)


def test_the_public_names_are_listed_once_and_in_order() -> None:
    assert cursor_gateway.__all__ == sorted(set(cursor_gateway.__all__))


def test_the_example_in_the_documentation_runs() -> None:
    failed, tried = doctest.testmod(cursor_gateway)
    assert tried > 0
    assert failed == 0
