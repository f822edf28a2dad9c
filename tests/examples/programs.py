"""The name of an example in; what it printed, run as a process of its own, out."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT = 300  # for a red build only: a loaded machine must not come near it


def run_example(
    name: str,
    *arguments: str,
    folder: Path,
    url: str = "",
    stdin: str = "",
    status: int = 0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """In that folder, with the exit status that it must have."""
    ended = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env={**installed(url), **(environment or {})},
        timeout=TIMEOUT,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def installed(url: str) -> dict[str, str]:
    """With `cursor-gateway` on PATH, as in an environment in which it is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CURSOR_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "PYTHONWARNINGS": "error", "CURSOR_GATEWAY_URL": url}


def run_notebook(file: Path) -> list[str]:
    """What each code cell shows: its last expression, as Markdown if the value can be shown so."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) >= (4, 5)
    names: dict[str, Any] = {}
    return [_run_cell("".join(one["source"]), names) for one in notebook["cells"] if one["cell_type"] == "code"]


def _run_cell(source: str, names: dict[str, Any]) -> str:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "notebook", "exec"), names)
    if not isinstance(last, ast.Expr):
        return ""
    value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
    return str(value._repr_markdown_()) if hasattr(value, "_repr_markdown_") else repr(value)
