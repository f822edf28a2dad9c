"""Nothing in, the pages below docs/reference out; with `--check`, which of them are not as they would be written."""

from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from cursor_gateway.schema import json_schema, typescript
from tools.reference.document_pages import documents_page, events_page
from tools.reference.open_calls_page import open_calls_page
from tools.reference.table_pages import cli_page, errors_page, settings_page, tools_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "documents.md": documents_page,
    "documents.ts": typescript,
    "errors.md": errors_page,
    "events.md": events_page,
    "open-calls.md": open_calls_page,
    "schema.json": lambda: msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n",
    "settings.md": settings_page,
    "tools.md": tools_page,
}


def stale_pages(folder: Path) -> list[str]:
    """Pages that are missing, differ, or belong to nothing."""
    differing = [name for name, text in PAGES.items() if _text(folder / name) != text()]
    foreign = [path.name for path in folder.glob("*") if path.name not in PAGES]
    return sorted([*differing, *foreign])


def _text(path: Path) -> str | None:
    return path.read_bytes().decode() if path.exists() else None


def write_pages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in PAGES.items():
        (folder / name).write_bytes(text().encode())


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if a page is not up to date.")
def main(check: bool) -> None:
    """Write the reference pages anew."""
    if not check:
        write_pages(FOLDER)
        return
    stale = stale_pages(FOLDER)
    for name in stale:
        click.echo(f"docs/reference/{name} is not up to date; run `make docs`", err=True)
    raise SystemExit(1 if stale else 0)


if __name__ == "__main__":
    main()
