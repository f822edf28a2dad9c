"""The list of conversations: by folder, without what programs began unless it is asked for, repeated calls as one."""

import json
from urllib.request import Request, urlopen

from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.using import ask_and_wait, choose_folder, conversations
from tests.server.conftest import unique


def call(gateway: RunningGateway, message: str, client: str) -> None:
    body = json.dumps({"message": message}).encode()
    headers = {"content-type": "application/json", "user-agent": client}
    urlopen(Request(f"{gateway.url}/v1/chat", body, headers), timeout=60).read()


def test_what_programs_began_is_behind_a_filter_and_repeats_are_one(page: Page, gateway: RunningGateway) -> None:
    mine, theirs = unique(), unique()
    for _ in range(3):
        call(gateway, theirs, "opencode/1.0")
    ask_and_wait(page, mine)
    expect(conversations(page).filter(has_text=mine)).to_have_count(1)
    expect(conversations(page).filter(has_text=theirs)).to_have_count(0)
    page.get_by_label("Filter the list").click()
    page.get_by_label("All, also of programs").check()
    expect(conversations(page).filter(has_text=theirs)).to_have_count(1)
    expect(conversations(page).filter(has_text=theirs)).to_contain_text("OpenCode · 3 times")
    page.get_by_label("Only OpenCode").check()
    expect(conversations(page).filter(has_text=mine)).to_have_count(0)
    page.reload()
    expect(conversations(page).filter(has_text=theirs)).to_have_count(1)  # it stays chosen


def test_conversations_are_grouped_by_their_folders(page: Page, gateway: RunningGateway) -> None:
    folder = gateway.workspace / f"shop-{unique()}"
    folder.mkdir()
    ask_and_wait(page, unique())
    page.get_by_role("link", name="New conversation").click()
    choose_folder(page, str(folder))
    title = unique()
    ask_and_wait(page, title)
    group = page.locator(f"#conversations h2:text-is('{folder.name}') + ul")
    expect(group.get_by_role("link")).to_have_count(1)
    expect(group).to_contain_text(title)
    page.get_by_label("Filter the list").click()
    page.get_by_label("Date", exact=True).check()
    expect(page.locator("#conversations h2:text-is('Today')")).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="New conversation").click()
    page.get_by_role("button", name="Folder:").click()
    expect(page.get_by_role("option").nth(1)).to_contain_text("Recent")  # and is offered again
