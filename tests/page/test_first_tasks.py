"""docs/first-tasks.md says how many clicks the first tasks take: a person does them, and has the same number."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from tests.gateways import running_gateway
from tests.page.conftest import Contexts, opened
from tests.page.first_tasks import AFTER, BEFORE, FILE, FOLDER, Person, answered, do_tasks, prepare
from tests.server.test_leaks import ended_agents

PAGE = Path(__file__).parents[2] / "docs" / "first-tasks.md"
ROW = re.compile(r"^\| \[[^]]+\]\(#([a-z-]+)\) \|.*\| (?:(\d+) clicks?)?[^|]* \|$", re.MULTILINE)


def documented() -> dict[str, int]:
    return {name: int(clicks or 0) for name, clicks in ROW.findall(PAGE.read_text(encoding="utf-8"))}


@pytest.mark.slow
def test_they_take_as_many_clicks_as_documented(tmp_path: Path, contexts: Contexts) -> None:
    with ended_agents(tmp_path), running_gateway(tmp_path) as gateway:
        prepare(gateway)
        context: BrowserContext = contexts(permissions=["clipboard-read", "clipboard-write"])
        context.route("**/v1/chat", answered)
        person = Person(opened(context, gateway.url))
        edited = gateway.workspace / FOLDER / FILE
        seen: list[str] = []
        person.picture = lambda name: (
            seen.append(edited.read_text()) if name in ("see-what-changed", "find-yesterdays-conversation") else None
        )
        clicks = do_tasks(person)
        assert seen == [AFTER, BEFORE]
        command = person.page.evaluate("navigator.clipboard.readText()")
        assert re.fullmatch(rf'cursor-gateway chat --url {gateway.url} --conversation conv_\S+ "…"', command)
    expected = documented()
    assert len(expected) == 10
    assert {name: expected.get(name) for name in clicks} == clicks


def test_each_has_a_picture() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in documented():
        (picture,) = re.findall(rf"\((images/task-{name}\.(?:png|svg))\)", text)
        assert (PAGE.parent / picture).is_file()
