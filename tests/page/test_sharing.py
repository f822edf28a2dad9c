"""An answer elsewhere: as a command, as a link, as a file."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import Contexts, both_sizes, opened
from tests.page.scripts import Script
from tests.page.using import answer_menu, answers, ask_and_wait, documents, expect_types, turns
from tests.server.conftest import http_client, sse, unique


@pytest.fixture
def clipboard_page(contexts: Contexts, gateway: RunningGateway, window: dict[str, Any]) -> Page:
    return opened(contexts(permissions=["clipboard-read", "clipboard-write"], **window), gateway.url)


def _copied(page: Page, button: str) -> str:
    answer_menu(answers(page).last).get_by_role("button", name=button).click()
    expect(answers(page).last.get_by_text("Copied")).to_be_visible()
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_the_command_asks_the_same(clipboard_page: Page, gateway: RunningGateway) -> None:
    message = f'It\'s "{unique()}" & $HOME `id`'
    ask_and_wait(clipboard_page, message)
    words = shlex.split(_copied(clipboard_page, "Copy as curl"))
    assert words[0] == "curl"
    body = words[words.index("-d") + 1]
    headers = dict(words[place + 1].split(": ", 1) for place, word in enumerate(words) if word == "-H")
    assert f"{gateway.url}/v1/chat" in words
    with http_client(gateway) as client:
        reply = client.post("/v1/chat", content=body, headers=headers)
    assert reply.status_code == 200
    result = [json.loads(event.data) for event in sse(reply.content)]
    assert result[-1]["status"] == "completed"
    assert message in json.dumps([event.get("finalContent") for event in result], ensure_ascii=False).replace(
        '\\"', '"'
    )


def test_a_link_leads_to_one_answer(clipboard_page: Page, contexts: Contexts) -> None:
    for message in ("The first", "The second", "The third"):
        ask_and_wait(clipboard_page, "line\n" * 60 + message)
    answers(clipboard_page).nth(1).hover()
    answer_menu(answers(clipboard_page).nth(1)).get_by_role("button", name="Copy link to this answer").click()
    expect(answers(clipboard_page).nth(1).get_by_text("Copied")).to_be_visible()
    other = opened(contexts(), clipboard_page.evaluate("navigator.clipboard.readText()"))
    expect(documents(answers(other).nth(1))).to_contain_text("The second")
    expect(answers(other).nth(1)).to_be_focused()
    expect(turns(other).nth(1).locator(".asked")).to_be_in_viewport()


@both_sizes
def test_an_answer_is_copied_as_text_or_as_markdown_with_all_that_was_done(
    clipboard_page: Page, script: Script
) -> None:
    ask_and_wait(clipboard_page, script.say("It is **done**.").shell("make all", "all is made").prompt())
    answers(clipboard_page).last.get_by_role("button", name="Copy answer").click()
    expect(answers(clipboard_page).last.get_by_role("button", name="Copied")).to_be_visible()
    assert clipboard_page.evaluate("navigator.clipboard.readText()").strip() == "It is **done**."
    assert "$ make all\nall is made" in _copied(clipboard_page, "Copy as Markdown")


def test_code_is_copied_as_it_is(clipboard_page: Page, script: Script) -> None:
    ask_and_wait(clipboard_page, script.say("```python\ndef one():\n\treturn '<b>'\n```\n").prompt())
    clipboard_page.get_by_role("article", name="Code, python").get_by_role("button", name="Copy").click()
    expect(clipboard_page.get_by_role("button", name="Copied")).to_be_visible()
    assert clipboard_page.evaluate("navigator.clipboard.readText()").strip() == "def one():\n\treturn '<b>'"


def test_the_downloaded_page_opens_by_itself(page: Page, script: Script, tmp_path: Path, browser: Browser) -> None:
    ask_and_wait(page, script.say("# A heading\n\n```python\nx = 1\n```\n").shell("ls", "a.txt\n").prompt("Show me."))
    with page.expect_download() as download:
        answer_menu(answers(page).last).get_by_role("button", name="Download HTML").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.suffix == ".html"
    context = browser.new_context(offline=True)
    watch = Watch(context)
    try:
        alone = context.new_page()
        alone.goto(file.as_uri())
        expect_types(alone, ["text", "code_block", "terminal_command"])
        expect(alone.get_by_role("heading", name="A heading")).to_be_visible()
        assert "Show me." in alone.title()
        assert watch.requests == [file.as_uri()]
        assert watch.found == []
    finally:
        context.close()
