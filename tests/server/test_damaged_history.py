"""A gateway whose history is damaged: it starts, says what it keeps, and answers every request without a 500."""

import shutil
from pathlib import Path

import pytest

from tests.server.damaged import make_histories, use_damaged
from tests.store.damages import damage


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_histories(tmp_path_factory.mktemp("histories"))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("number", range(36))
def test_it_starts_and_answers(histories: tuple[Path, Path], tmp_path: Path, number: int) -> None:
    shutil.copytree(histories[number % 3 == 0], tmp_path / "data")
    use_damaged(tmp_path, damage(tmp_path / "data", number))
