"""The table of broken rules applies to the sources as they are."""

from pathlib import Path

import pytest

from nemesis.mutations import MUTATIONS, Mutation, mutated

_SOURCES = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.parametrize("mutation", [pytest.param(one, id=one.rule) for one in MUTATIONS])
def test_every_row_applies(mutation: Mutation, tmp_path: Path) -> None:
    for file in {change.file for change in mutation.changes}:
        copy = tmp_path / "cursor_gateway" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((_SOURCES / "cursor_gateway" / file).read_bytes())
    mutated(mutation, tmp_path)
    for file in {change.file for change in mutation.changes}:
        compile((tmp_path / "cursor_gateway" / file).read_text(), file, "exec")
    with pytest.raises(ValueError, match="update the table"):
        mutated(mutation, tmp_path)
