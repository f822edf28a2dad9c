"""The modules of the package in; a page with the beginning of each one's description out."""

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tools.reference.markdown import page

_PACKAGE = Path(__file__).parents[2] / "src" / "cursor_gateway"


def modules_page() -> str:
    return page(
        "Modules",
        "Every module of the package, with the beginning of its description. `ARCHITECTURE.md` explains how they fit\n"
        "together.",
        *(part for folder, lines in groupby(_lines(), lambda line: line[0]) for part in _section(folder, lines)),
    )


def _lines() -> Iterator[tuple[str, str]]:
    """Sorted by folder; the package's own modules come first."""
    paths = [path.relative_to(_PACKAGE) for path in _PACKAGE.rglob("*.py") if path.stem != "__init__"]
    for path in sorted(paths, key=lambda path: (path.parent.parts, path.name)):
        folder = "" if path.parent == Path() else f"{path.parent.as_posix()}/"
        yield folder, f"- `{path.name}`: {_description(_PACKAGE / path)}"


def _section(folder: str, lines: Iterator[tuple[str, str]]) -> Iterator[str]:
    if folder:
        yield f"## {folder}"
        yield _description(_PACKAGE / folder / "__init__.py")
    yield "\n".join(line for _, line in lines)


def _description(path: Path) -> str:
    """Its first paragraph, on one line."""
    description = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if description is None:
        raise SystemExit(f"{path.name} has no docstring")
    return " ".join(description.partition("\n\n")[0].split())
