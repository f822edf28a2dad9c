"""Nothing in, the generated pages below docs out; with `--check`, which of them are not up to date."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click
import msgspec

from cursor_gateway.schema import json_schema, typescript
from tools.reference.client_pages import client_pages
from tools.reference.document_pages import documents_page, events_page
from tools.reference.failures_page import failures_page
from tools.reference.index_pages import decisions_index, reference_index
from tools.reference.man_page import man_page
from tools.reference.modules_page import modules_page
from tools.reference.open_calls_page import open_calls_page
from tools.reference.run_page import run_page
from tools.reference.structure_page import structure_page
from tools.reference.table_pages import cli_page, errors_page, settings_page, tools_page
from tools.reference.troubleshooting_page import troubleshooting_page

DOCS = Path(__file__).parents[2] / "docs"

Pages: TypeAlias = dict[str, Callable[[], str]]

PAGES: Pages = {
    "README.md": reference_index,
    "cli.md": cli_page,
    "cursor-gateway.1": man_page,
    "documents.md": documents_page,
    "documents.ts": typescript,
    "errors.md": errors_page,
    "events.md": events_page,
    "failures.md": failures_page,
    "modules.md": modules_page,
    "open-calls.md": open_calls_page,
    "run.md": run_page,
    "schema.json": lambda: msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n",
    "settings.md": settings_page,
    "structure.md": structure_page,
    "tools.md": tools_page,
}

FOLDERS: dict[str, Pages] = {"reference": PAGES, "clients": client_pages()}
OTHERS: Pages = {  # beside pages that are written by hand
    "decisions/README.md": decisions_index,
    "troubleshooting.md": troubleshooting_page,
}


def stale_pages(docs: Path) -> list[str]:
    """Pages that are missing, differ, or belong to nothing."""
    stale = [name for name, text in OTHERS.items() if _text(docs / name) != text()]
    for folder, pages in FOLDERS.items():
        stale += [f"{folder}/{name}" for name, text in pages.items() if _text(docs / folder / name) != text()]
        stale += [f"{folder}/{path.name}" for path in (docs / folder).glob("*") if path.name not in pages]
    return sorted(stale)


def _text(path: Path) -> str | None:
    return path.read_bytes().decode() if path.exists() else None


def write_pages(docs: Path) -> None:
    for folder, pages in FOLDERS.items():
        (docs / folder).mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (docs / folder / name).write_bytes(text().encode())
    for name, text in OTHERS.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_bytes(text().encode())


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if a page is not up to date.")
def main(check: bool) -> None:
    """Write the generated pages anew."""
    if not check:
        write_pages(DOCS)
        return
    stale = stale_pages(DOCS)
    for name in stale:
        click.echo(f"docs/{name} is not up to date; run `make docs`", err=True)
    raise SystemExit(1 if stale else 0)


if __name__ == "__main__":
    main()
