"""A gateway with API keys: the page asks for one, once, and never puts it where others could read it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from cursor_gateway.keys import hash_key, new_key
from tests.gateways import RunningGateway, running_gateway
from tests.page.browsers import Watch
from tests.page.conftest import Contexts, opened
from tests.page.using import answer_menu, answers, ask, ask_and_wait, conversations, expect_state, prompt_box

_KEY = new_key()
_REFUSED = "status of 401"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(
        tmp_path_factory.mktemp("locked"), settings={"api_keys": f"laptop={hash_key(_KEY)}"}
    ) as running:
        yield running


@pytest.mark.smoke
def test_the_key_is_asked_for_once_and_kept_out_of_addresses(
    contexts: Contexts, locked: RunningGateway, watch: list[Watch]
) -> None:
    context = contexts()
    watch[0].allow(_REFUSED)
    page = opened(context, locked.url)
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Key").fill(_KEY)
    dialog.get_by_label("Key").press("Enter")
    expect(dialog).to_be_hidden()
    ask_and_wait(page, "Who am I?")
    expect(conversations(page)).to_have_count(1)
    page.reload()
    expect(conversations(page)).to_have_count(1)
    expect_state(page, "completed")
    expect(dialog).to_be_hidden()
    assert not [url for url in [*watch[0].requests, page.url] if _KEY in url]
    assert context.cookies() == []
    answer_menu(answers(page).last).get_by_role("button", name="Copy as curl").click()
    assert _KEY not in page.content()


def test_a_wrong_key_is_asked_for_again_and_can_be_declined(
    contexts: Contexts, locked: RunningGateway, watch: list[Watch]
) -> None:
    context = contexts()
    watch[0].allow(_REFUSED)
    page = opened(context, locked.url)
    dialog = page.get_by_role("dialog", name="API key")
    dialog.get_by_label("Key").fill("cgw_wrong")
    dialog.get_by_role("button", name="Use this key").click()
    expect(dialog.get_by_label("Key")).to_have_value("")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    ask(page, "Who am I?")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Key").fill(_KEY)
    dialog.get_by_role("button", name="Use this key").click()
    expect_state(page, "completed")
    expect(prompt_box(page)).to_have_value("")
