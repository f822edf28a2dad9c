"""The migrations of an engine: numbered SQL scripts in its folder `migrations`, applied in this order."""

from functools import cache
from importlib import resources

from msgspec import Struct


class Migration(Struct, frozen=True):
    number: int
    name: str
    script: str


@cache
def migrations_of(package: str) -> tuple[Migration, ...]:
    """Numbered from 1 without a gap, so the last number is their count."""
    files = [file for file in resources.files(package).joinpath("migrations").iterdir() if file.name.endswith(".sql")]
    found = []
    for expected, file in enumerate(sorted(files, key=lambda file: file.name), start=1):
        number, _, name = file.name.removesuffix(".sql").partition("_")
        assert int(number) == expected, file.name
        found.append(Migration(expected, name.replace("_", " "), file.read_text(encoding="utf-8")))
    return tuple(found)
