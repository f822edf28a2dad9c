"""The sources in; those of a newer version of the gateway, as the next release might be, out.

It speaks a newer protocol and still works with this one, sends a field that this one does not know, and has a migration
that this one has not.
"""

from pathlib import Path
from shutil import copytree, ignore_patterns

from cursor_gateway.store.postgres.schema import newest

SOURCES = Path(__file__).resolve().parents[1] / "src"
_CHANGES = (
    ("store/cluster.py", "LEVEL = 2\n", "LEVEL = 3\n"),
    (
        "cluster/commands.py",
        'class Take(Struct, frozen=True, tag="take"):\n',
        'class Take(Struct, frozen=True, tag="take", kw_only=True):\n    added: int = 1\n',
    ),
    ("cluster/front.py", "Take(request)", "Take(request=request)"),
)
_MIGRATION = "ALTER TABLE conversations ADD COLUMN added integer NOT NULL DEFAULT 1;\n"


def newer(folder: Path, sources: Path) -> Path:
    """Raises `ValueError` if the sources have changed such that this module must follow."""
    copytree(sources, folder, ignore=ignore_patterns("__pycache__"))
    package = folder / "cursor_gateway"
    for name, old, new in _CHANGES:
        file = package / name
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{name}: {old!r} occurs {text.count(old)} times; update nemesis/versions.py.")
        file.write_text(text.replace(old, new), encoding="utf-8")
    migrations = package / "store" / "postgres" / "migrations"
    (migrations / f"{newest() + 1:04}_added.sql").write_text(_MIGRATION, encoding="utf-8")
    return folder
