"""What docs/client.md shows, works as it shows it."""

import doctest
from pathlib import Path

from tests.gateways import running_gateway

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
USUAL = "http://127.0.0.1:8787"


def test_the_page_is_true(tmp_path: Path) -> None:
    """Against a gateway in demo mode, as a newcomer has it."""
    with running_gateway(tmp_path, has_agent=False, settings={"replay_speed": "0"}) as gateway:
        page = PAGE.read_text().replace(USUAL, gateway.url)
        examples = doctest.DocTestParser().get_doctest(page, {}, PAGE.name, str(PAGE), 0)
        result: list[str] = []
        found = doctest.DocTestRunner().run(examples, out=result.append)
    assert found.attempted > 20
    assert found.failed == 0, "".join(result)
