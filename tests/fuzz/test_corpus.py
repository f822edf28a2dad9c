"""What fuzzing has kept breaks no law: the seeds, the corpus, and every case that once did."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.cases import corpus_name
from fuzz.target import CORPUS, FOUND
from fuzz.targets import NAMES, places, target_named

MOST_FILES, MOST_BYTES = 60, 300_000  # of a target; of all


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    places.close()


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_breaks_no_law(name: str) -> None:
    target = target_named(name)
    for path in (CORPUS / name).iterdir():
        try:
            target.run(path.read_bytes())
        except Exception as error:
            error.add_note(f"the input is {path.relative_to(CORPUS.parent)}")
            raise


CASES = sorted(path for path in FOUND.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_broke_a_law_does_so_no_longer(path: Path) -> None:
    target_named(path.parent.name).run(path.read_bytes())


def test_the_corpus_is_small_and_has_no_strangers() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(NAMES)
    for name in NAMES:
        files = list((CORPUS / name).iterdir())
        assert 0 < len(files) <= MOST_FILES
        for path in files:
            assert path.name == corpus_name(path.read_bytes())
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) <= MOST_BYTES


def test_what_was_found_belongs_to_a_target() -> None:
    assert {path.parent for path in CASES} <= {FOUND / name for name in NAMES}
