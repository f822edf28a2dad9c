"""The figures of a small package are counted, and one above its limit is reported."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tools import structure

FILES = {
    "store/base.py": "class Store:\n    def one(self): ...\n\n    def _own(self): ...\n",
    "store/cluster.py": "class ClusterStore:\n    async def two(self): ...\n    async def three(self): ...\n",
    "runs/run_service.py": "from cursor_gateway.runs.log import LiveLog\n\nclass RunService:\n    pass\n",
    "runs/log.py": (
        "class LiveLog:\n"
        "    def __init__(self):\n"
        "        self.count = 0\n"
        "        self.ended: Callable = lambda: None\n\n\n"
        "class RunState(Struct):\n"
        "    said: str\n\n\n"
        "async def read(reader):\n"
        "    await reader.next()\n"
    ),
    "dialects/base.py": "class Form: ...\n\nclass _Own: ...\n\nReply: TypeAlias = str\n",
    "dialects/chat.py": "class Form: ...\n\nclass _Own: ...\n\nclass Reply: ...\n",
    "dialects/replies.py": "class Form: ...\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "src" / "cursor_gateway" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_what_is_counted(tree: Path) -> None:
    assert structure.measure(tree) == {
        "lines": 24,
        "files": 7,
        "test_lines": 0,
        "import_percent": 4.2,
        "single_use_modules": 1,
        "runs_lines": 11,
        "runs_files": 2,
        "run_attributes": 3,
        "run_callbacks": 1,
        "event_loops": 1,
        "names_twice": 2,
        "names_thrice": 1,
        "store_methods": 1,
        "cluster_store_methods": 2,
        "run_service_methods": 0,
        "dialect_classes": 2,
    }


def test_a_figure_above_its_limit_is_reported(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = structure.measure(tree)
    monkeypatch.setattr(structure, "limits", lambda: {**found, "walk_modules": 1})
    assert CliRunner().invoke(structure.main, ["--check", "--root", str(tree)]).output == ""
    monkeypatch.setattr(structure, "limits", lambda: {**found, "walk_modules": 1, "files": 6})
    result = CliRunner().invoke(structure.main, ["--check", "--root", str(tree)])
    assert (result.exit_code, result.output) == (1, "files of source: 7, and at most 6 are allowed\n")
