import shutil
from pathlib import Path

import pytest

from benchmarks.compiling import compile_program


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled agent and load client."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("programs")
    compile_program("agent.c", folder / "cursor-agent")
    compile_program("load.c", folder / "load")
    return folder
