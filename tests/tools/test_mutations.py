"""The table of mutations: every row applies to the code as it is, and names tests that are there."""

from pathlib import Path

import pytest

from tools.mutations.__main__ import ROOT, mutated
from tools.mutations.table import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.file}: {mutation.rule}")
def test_every_row_applies(mutation: Mutation) -> None:
    text, changed = mutated(mutation)
    assert text != changed
    compile(changed, mutation.file, "exec")
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutation.tests)


def test_no_two_rows_are_the_same() -> None:
    assert len({(one.file, one.old, one.new) for one in MUTATIONS}) == len(MUTATIONS) >= 80
    assert len({(one.file, one.rule) for one in MUTATIONS}) == len(MUTATIONS)


def test_a_row_that_no_longer_applies_is_an_error() -> None:
    stale = Mutation("keys.py", "no such line", "", "a rule", ("tests/test_keys.py",))
    with pytest.raises(ValueError, match="occurs 0 times; update the table"):
        mutated(stale)
    assert Path(ROOT / "docs" / "security.md").read_text().count("<!-- mutations -->") == 1
