"""Earlier conversations: listed, opened, searched, deleted."""

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import Contexts, opened
from tests.page.scripts import Script
from tests.page.using import answers, ask, ask_and_wait, conversations, documents, expect_state, expect_types, of_type
from tests.server.conftest import unique


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
    expect(page.get_by_role("navigation", name="Conversations")).to_contain_text("Nothing was found")


def test_a_conversation_is_deleted_only_when_that_is_confirmed(page: Page) -> None:
    title = unique()
    ask_and_wait(page, title)
    listed = conversations(page).filter(has_text=title)
    expect(listed).to_have_count(1)
    page.get_by_role("button", name="Delete").click()
    asked = page.get_by_role("dialog", name="Delete this conversation?")
    asked.get_by_role("button", name="Keep it").click()
    expect(asked).to_be_hidden()
    expect(listed).to_have_count(1)
    page.get_by_role("button", name="Delete").click()
    asked.get_by_role("button", name="Delete").click()
    expect(listed).to_have_count(0)
    expect(answers(page)).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("New conversation")


def test_a_conversation_that_does_not_exist_is_told(gateway: RunningGateway, page: Page, watch: list[Watch]) -> None:
    watch[0].allow("status of 404")
    page.goto(f"{gateway.url}/#/c/conv_nowhere")
    expect(page.get_by_role("alert")).to_contain_text("conv_nowhere")
