"""A conversation is shared by a read-only link, which is revoked in the same dialog or in the list."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import Contexts, both_sizes, opened
from tests.page.using import answers, ask_and_wait, menu
from tests.server.conftest import unique

pytestmark = both_sizes


@pytest.fixture
def sharing_page(sharing: RunningGateway, contexts: Contexts, window: dict[str, Any]) -> Page:
    return opened(contexts(**window), sharing.url)


def created(page: Page) -> str:
    menu(page).get_by_role("button", name="Share a read-only link").click()
    page.get_by_role("button", name="Create link").click()
    box = page.get_by_role("textbox", name="Link")
    expect(box).to_be_visible()
    return box.input_value()


def test_a_link_is_read_by_others_until_it_is_revoked(
    sharing_page: Page, contexts: Contexts, window: dict[str, Any], watch: list[Watch]
) -> None:
    ask_and_wait(sharing_page, "standin: text")
    said = answers(sharing_page).locator(".prose").first.inner_text()
    link = created(sharing_page)
    context = contexts(**window)
    watch[-1].allow("404")
    reader = opened(context, link)
    expect(reader.get_by_role("heading", name="Answer")).to_be_visible()
    expect(reader.locator("article").first).to_contain_text(said.split("\n")[0])
    expect(reader.locator("textarea, input, form")).to_have_count(0)
    assert reader.evaluate("document.documentElement.scrollWidth <= innerWidth")
    sharing_page.get_by_role("button", name="Revoke").click()
    expect(sharing_page.get_by_text("The link was revoked")).to_be_visible()
    reader.reload()
    expect(reader.get_by_text("its owner has revoked it")).to_be_visible()


def test_links_are_listed_and_revoked_with_the_permissions(
    sharing_page: Page, contexts: Contexts, window: dict[str, Any], watch: list[Watch]
) -> None:
    word = unique()
    ask_and_wait(sharing_page, f"{word} standin: text")
    link = created(sharing_page)
    sharing_page.get_by_role("link", name="Permissions").last.click()
    listed = sharing_page.get_by_role("list", name="Read-only links").get_by_role("listitem").filter(has_text=word)
    expect(listed).to_have_count(1)
    listed.get_by_role("button", name="Revoke").click()
    expect(listed).to_have_count(0)
    context = contexts(**window)
    watch[-1].allow("404")
    reader = opened(context, link)
    expect(reader.get_by_text("its owner has revoked it")).to_be_visible()


def test_where_links_are_off_the_page_says_how_to_allow_them(page: Page) -> None:
    ask_and_wait(page, "standin: text")
    menu(page).get_by_role("button", name="Share a read-only link").click()
    expect(page.get_by_text("public_links = true")).to_be_visible()
    expect(page.get_by_role("button", name="Create link")).to_be_hidden()
