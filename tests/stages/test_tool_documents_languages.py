"""A path tells the language, or the language is `text`."""

import pytest
from hypothesis import given

from cursor_gateway.stages.tool_documents import language_of
from tests.strategies import scalar_text


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("src/main.py", "python"),
        ("main.PY", "python"),
        ("a.test.tsx", "tsx"),
        ("C:\\work\\app.ts", "typescript"),
        ("C:\\work/mixed\\app.rs", "rust"),
        ("deploy.yml", "yaml"),
        ("icon.svg", "xml"),
        ("notes/CMakeLists.txt", "cmake"),
        ("Dockerfile", "dockerfile"),
        ("docker/DOCKERFILE", "dockerfile"),
        ("Makefile", "makefile"),
        ("rules.mk", "makefile"),
        (".py", "python"),
    ],
)
def test_a_known_name_or_extension_gives_its_language(path: str, language: str) -> None:
    assert language_of(path) == language


@pytest.mark.parametrize(
    "path", ["", "/", "README", "py", "archive.xyz", "a.py/", "dir.py/README", "name.", "notes.txt"]
)
def test_any_other_path_is_text(path: str) -> None:
    assert language_of(path) == "text"


@given(scalar_text)
def test_only_the_last_part_of_a_path_matters(name: str) -> None:
    last = name.replace("\\", "/").rpartition("/")[2]
    for folder in ("/", "src.py/", "C:\\x\\"):
        assert language_of(folder + name) == language_of(last)
