from collections.abc import Iterator

import pytest

from tests.store.blocking import close_all


@pytest.fixture(autouse=True)
def _closed_stores() -> Iterator[None]:
    yield
    close_all()
