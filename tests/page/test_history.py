"""Earlier conversations: listed, opened, searched, deleted."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import PHONE, Contexts, both_sizes, opened
from tests.page.scripts import Script
from tests.page.using import (
    answers,
    ask,
    ask_and_wait,
    conversations,
    documents,
    expect_state,
    expect_types,
    menu,
    of_type,
    prompt_box,
    turns,
)
from tests.server.conftest import unique


@pytest.mark.smoke
def test_a_conversation_is_listed_and_opened_again(page: Page, script: Script) -> None:
    first, second = unique(), unique()
    script.plan("Move house", [("pack", "Pack")]).todos(("pack", "Pack", "COMPLETED")).say("Packed.")
    ask_and_wait(page, script.prompt(first))
    ask_and_wait(page, second)
    page.get_by_role("link", name="New conversation").click()
    expect(answers(page)).to_have_count(0)
    link = conversations(page).filter(has_text=first)
    expect(link).to_have_count(1)
    link.click()
    expect(answers(page)).to_have_count(2)
    expect_types(answers(page).first, ["plan", "todo_update", "text"])
    expect(of_type(page, "plan").locator("li")).to_have_attribute("data-status", "completed")
    expect(documents(answers(page).last)).to_contain_text(second)
    expect(link).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("heading", level=1)).to_contain_text(first)


def test_an_open_conversation_goes_on(page: Page) -> None:
    """As the same one: the agent knows what was said in it."""
    mark = unique()
    ask_and_wait(page, mark)
    page.reload()
    expect(answers(page)).to_have_count(1)
    ask(page, "standin: history")
    expect(documents(answers(page).last)).to_contain_text(mark)


def test_a_run_that_is_opened_again_is_watched_from_its_beginning(
    page: Page, script: Script, contexts: Contexts
) -> None:
    ask(page, script.say("Early").gate("1").say(" and late.").prompt())
    expect(of_type(page, "text")).to_have_text("Early")
    other = opened(contexts(), page.url)
    expect(of_type(other, "text")).to_have_text("Early")
    page.reload()
    expect(of_type(page, "text")).to_have_text("Early")
    expect_state(page, "running")
    script.open("1")
    for one in (page, other):
        expect(of_type(one, "text")).to_have_text("Early and late.")
        expect_state(one, "completed")


@pytest.mark.parametrize("where", ["prompt", "answer"])
def test_search_finds_words_of_the_prompt_and_of_the_answer(page: Page, script: Script, where: str) -> None:
    word, title = f"quokka{unique()[5:]}", unique()
    ask_and_wait(page, script.say(word if where == "answer" else "Nothing.").prompt(f"{title} {where} "))
    ask_and_wait(page, word if where == "prompt" else "Something else")
    page.get_by_role("searchbox", name="Search conversations").fill(word)
    expect(conversations(page)).to_have_count(1)
    expect(conversations(page)).to_contain_text(title)
    page.get_by_role("searchbox", name="Search conversations").fill(unique())
    expect(page.get_by_role("navigation", name="Conversations")).to_contain_text("Nothing found")
    page.keyboard.press("Escape")
    expect(conversations(page).filter(has_text=title)).to_have_count(1)
    expect(page.get_by_role("navigation", name="Conversations")).not_to_contain_text("Found")


def test_a_run_that_is_stopped_in_one_window_is_stopped_in_all(page: Page, script: Script, contexts: Contexts) -> None:
    ask(page, script.say("Half of it").gate("never").prompt())
    expect(of_type(page, "text")).to_have_text("Half of it")
    other = opened(contexts(), page.url)
    expect(of_type(other, "text")).to_have_text("Half of it")
    other.get_by_role("button", name="Stop").click()
    for one in (page, other):
        expect_state(one, "stopped")


def test_a_deleted_conversation_can_be_brought_back(page: Page, gateway: RunningGateway) -> None:
    title = unique()
    ask_and_wait(page, title)
    address = page.url
    listed = conversations(page).filter(has_text=title)
    expect(listed).to_have_count(1)
    menu(page).get_by_role("button", name="Delete").click()
    expect(listed).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("New conversation")
    page.get_by_role("button", name="Undo").click()
    expect(listed).to_have_count(1)
    expect(page).to_have_url(address)
    expect(documents(answers(page))).to_contain_text(title)


@both_sizes
def test_a_deleted_conversation_is_gone_when_the_page_is_left(
    page: Page, gateway: RunningGateway, watch: list[Watch]
) -> None:
    watch[0].allow("status of 404")
    title = unique()
    ask_and_wait(page, title)
    address = page.url
    menu(page).get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.reload()
    expect(conversations(page).filter(has_text=title)).to_have_count(0)
    page.goto(address)
    expect(page.get_by_text("Conversation not found")).to_be_visible()


def test_a_conversation_is_renamed_and_pinned(page: Page) -> None:
    first, second = unique(), unique()
    ask_and_wait(page, first)
    menu(page).get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Title").fill(f"Renamed {first}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Renamed {first}")
    menu(page).get_by_role("button", name="Pin").click()
    page.get_by_role("link", name="New conversation").click()
    expect(answers(page)).to_have_count(0)
    ask_and_wait(page, second)
    nav = page.get_by_role("navigation", name="Conversations")
    expect(nav.get_by_role("heading").first).to_have_text("Pinned")
    expect(nav.get_by_role("link").first).to_contain_text(f"Renamed {first}")
    page.reload()
    expect(nav.get_by_role("link").first).to_contain_text(f"Renamed {first}")
    nav.get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Renamed {first}")
    menu(page).get_by_role("button", name="Unpin").click()
    expect(nav.get_by_role("link").filter(has_text=first)).to_have_count(1)
    expect(nav.get_by_role("heading", name="Pinned")).to_have_count(0)


@both_sizes
@pytest.mark.parametrize(("form", "words"), [("Markdown", "## You"), ("JSON", '"messages"')])
def test_a_whole_conversation_is_exported(page: Page, form: str, words: str) -> None:
    first, second = unique(), unique()
    ask_and_wait(page, first)
    ask_and_wait(page, second)
    with page.expect_download() as download:
        menu(page).get_by_role("button", name=f"Export as {form}").click()
    text = download.value.path().read_text(encoding="utf-8")
    assert all(word in text for word in (words, first, second))


@both_sizes
def test_an_edited_prompt_starts_a_branch_and_the_original_stays(page: Page) -> None:
    first, second, third = unique(), unique(), unique()
    ask_and_wait(page, first)
    ask_and_wait(page, second)
    original = page.url
    turns(page).last.hover()
    turns(page).last.get_by_role("button", name="Edit prompt").click()
    box = page.get_by_role("textbox", name="Edited prompt")
    expect(box).to_have_value(second)
    box.fill(third)
    page.locator("form.edit").get_by_role("button", name="Send").click()
    expect(page).not_to_have_url(original)
    expect(answers(page)).to_have_count(1)
    expect_state(page, "completed")
    expect(documents(answers(page))).to_contain_text(first)  # the agent knows what was said before
    expect(documents(answers(page))).not_to_contain_text(second)
    page.reload()
    page.get_by_role("link", name="another conversation").click()
    expect(page).to_have_url(original)
    expect(answers(page)).to_have_count(2)
    expect(documents(answers(page).last)).to_contain_text(second)


@both_sizes
def test_retry_after_a_failure_asks_the_same_again_in_place(page: Page) -> None:
    ask(page, "standin: fail-quota")
    expect_state(page, "error")
    address = page.url
    answers(page).last.get_by_role("button", name="Retry").click()
    expect(answers(page)).to_have_count(2)
    expect(turns(page).last).to_contain_text("standin: fail-quota")
    expect(page).to_have_url(address)


@both_sizes
def test_drafts_are_kept_for_each_conversation(page: Page) -> None:
    ask_and_wait(page, unique())
    prompt_box(page).fill("Half a thought")
    page.evaluate("location.hash = '#/'")
    expect(prompt_box(page)).to_have_value("")
    prompt_box(page).fill("Another one")
    page.reload()
    expect(prompt_box(page)).to_have_value("Another one")
    page.go_back()
    expect(answers(page)).to_have_count(1)
    expect(prompt_box(page)).to_have_value("Half a thought")


@both_sizes
def test_files_of_a_draft_are_kept_for_each_conversation(page: Page, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one\n")
    (tmp_path / "large.txt").write_text("x" * 190_000)
    ask_and_wait(page, unique())
    conversation = page.url
    attachments = page.get_by_role("list", name="Attachments").get_by_role("listitem")
    page.locator("#files").set_input_files([tmp_path / "one.txt"])
    expect(attachments).to_have_text(["one.txt"])
    page.evaluate("location.hash = '#/'")
    expect(attachments).to_have_count(0)
    page.evaluate("localStorage.setItem('other', 'x'.repeat(5_100_000))")  # now the storage is nearly full
    page.locator("#files").set_input_files([tmp_path / "large.txt"])
    expect(attachments).to_have_text(["large.txt"])
    page.goto(conversation)
    expect(attachments).to_have_text(["one.txt"])
    page.go_back()
    expect(attachments).to_have_text(["large.txt"])
    page.goto(conversation)
    page.reload()
    expect(attachments).to_have_text(["one.txt"])
    ask_and_wait(page, "Look.")
    expect(attachments).to_have_count(0)
    expect(page.locator(".asked").last.locator("summary")).to_have_text("one.txt")
    page.reload()
    expect(answers(page)).to_have_count(2)
    expect(attachments).to_have_count(0)


def test_on_a_phone_the_history_is_in_the_menu(contexts: Contexts, gateway: RunningGateway) -> None:
    page = opened(contexts(**PHONE), gateway.url)
    title = unique()
    ask_and_wait(page, title)
    menu(page).get_by_role("button", name="Rename").tap()
    page.get_by_role("textbox", name="Title").fill(f"Renamed {title}")
    page.get_by_role("button", name="Save").tap()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Renamed {title}")
    menu(page).get_by_role("button", name="Pin").tap()
    page.get_by_role("button", name="Conversations").first.tap()
    nav = page.get_by_role("navigation", name="Conversations")
    expect(nav.get_by_role("heading").first).to_have_text("Pinned")
    page.get_by_role("link", name="New conversation").tap()
    expect(nav).to_be_hidden()
    page.get_by_role("button", name="Conversations").first.tap()
    page.get_by_role("searchbox", name="Search conversations").fill(title)
    expect(conversations(page)).to_have_count(1)
    conversations(page).first.tap()
    expect(documents(answers(page))).to_contain_text(title)
    menu(page).get_by_role("button", name="Delete").tap()
    page.get_by_role("button", name="Undo").tap()
    expect(documents(answers(page))).to_contain_text(title)
    with page.expect_download():
        menu(page).get_by_role("button", name="Export as Markdown").tap()


def test_a_conversation_that_does_not_exist_is_reported(
    gateway: RunningGateway, page: Page, watch: list[Watch]
) -> None:
    watch[0].allow("status of 404")
    page.goto(f"{gateway.url}/#/c/conv_nowhere")
    expect(page.get_by_text("Conversation not found")).to_be_visible()
    page.get_by_role("link", name="Start a new conversation").click()
    expect(page.get_by_text("What should the agent work on?")).to_be_visible()
