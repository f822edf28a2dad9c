from pathlib import Path

import pytest

from tests.agent.driving import Standin


@pytest.fixture
def standin(tmp_path: Path) -> Standin:
    return Standin(tmp_path)
