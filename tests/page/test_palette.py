"""Ctrl K finds what can be done, models, folders and conversations; arrow up brings back what was sent."""

import re

from playwright.sync_api import Page, expect

from tests.page.conftest import both_sizes
from tests.page.using import answer_menu, answers, ask_and_wait, expect_state, menu, prompt_box
from tests.server.conftest import unique


def palette(page: Page, words: str = "") -> None:
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Find a command")
    expect(box).to_be_focused()
    box.fill(words)


@both_sizes
def test_the_palette_leads_everywhere(page: Page) -> None:
    palette(page, "runs")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    palette(page, "permissions")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Permissions", level=1)).to_be_visible()
    palette(page, "dark")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", re.compile("dark|light"))
    palette(page, "new conv")
    page.keyboard.press("Enter")
    expect(page.get_by_text("What should the agent work on?")).to_be_visible()
    palette(page, "model mini 5")  # words in any order
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Model: GPT-5 Mini")).to_be_visible()


def test_the_palette_finds_conversations_and_says_when_there_is_nothing(page: Page) -> None:
    title = unique()
    ask_and_wait(page, title)
    page.get_by_role("link", name="New conversation").click()
    palette(page, title)
    page.get_by_role("option", name=title).click()
    expect(answers(page)).to_have_count(1)
    palette(page, "zzz nothing zzz")
    expect(page.get_by_role("dialog").get_by_text("Nothing matches")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_models_are_found_by_words_and_recent_ones_come_first(page: Page) -> None:
    page.get_by_role("button", name="Model:").click()
    search = page.get_by_role("combobox", name="Search models")
    search.fill("no such model at all")
    expect(page.get_by_text("No model matches.")).to_be_visible()
    search.fill("mini 5")
    page.keyboard.press("Enter")
    page.reload()
    page.get_by_role("button", name="Model:").click()
    expect(page.get_by_role("option").nth(1)).to_contain_text("Recent")
    expect(page.get_by_role("option").nth(1)).to_contain_text("GPT-5 Mini")


def test_arrow_up_brings_back_what_was_sent(page: Page) -> None:
    first, second = unique(), unique()
    ask_and_wait(page, first)
    ask_and_wait(page, second)
    prompt_box(page).press("ArrowUp")
    expect(prompt_box(page)).to_have_value(second)
    prompt_box(page).press("ArrowUp")
    expect(prompt_box(page)).to_have_value(first)
    prompt_box(page).press("ArrowDown")
    prompt_box(page).press("ArrowDown")
    expect(prompt_box(page)).to_have_value("")
    prompt_box(page).fill("a line\nand another")
    prompt_box(page).press("ArrowUp")  # moves the cursor: something is written
    expect(prompt_box(page)).to_have_value("a line\nand another")


@both_sizes
def test_versions_of_a_prompt_are_switched_in_place(page: Page) -> None:
    first, second = unique(), unique()
    ask_and_wait(page, first)
    address = page.url
    page.locator(".turn").hover()
    page.get_by_role("button", name="Edit prompt").click()
    page.get_by_role("textbox", name="Edited prompt").fill(second)
    page.locator(".edit").get_by_role("button", name="Send").click()
    versions = page.get_by_role("group", name="Versions of this prompt")
    expect(page.locator(".asked")).to_have_text(second)
    expect_state(page, "completed")
    expect(versions).to_have_text("2/2")
    versions.get_by_role("link", name="Previous version").click()
    expect(page.locator(".asked")).to_have_text(first)
    expect(versions).to_have_text("1/2")
    versions.get_by_role("link", name="Next version").click()
    expect(page.locator(".asked")).to_have_text(second)
    menu(page).get_by_role("button", name="Delete").click()
    page.reload()  # ends the time in which it can be undone
    page.goto(address)
    expect(page.locator(".asked")).to_have_text(first)
    expect(versions).to_have_count(0)


def test_an_answer_is_asked_for_again_with_another_model(page: Page) -> None:
    ask_and_wait(page, unique())
    answer_menu(answers(page)).get_by_role("button", name="Retry with another model").click()
    page.get_by_role("combobox", name="Retry with which model?").fill("mini")
    page.keyboard.press("Enter")
    expect(page.locator(".facts")).to_contain_text("gpt-5-mini")
    expect_state(page, "completed")
    expect(page.get_by_role("group", name="Versions of this prompt")).to_have_text("2/2")
