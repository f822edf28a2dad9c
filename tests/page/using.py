"""A page in; what a person sees and does on it, by the names that also a screen reader has for it, out."""

from collections.abc import Sequence

from playwright.sync_api import Locator, Page, expect


def prompt_box(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message to the agent")


def ask(page: Page, text: str) -> None:
    prompt_box(page).fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def ask_and_wait(page: Page, text: str) -> None:
    before = answers(page).count()
    ask(page, text)
    expect(answers(page)).to_have_count(before + 1)
    expect_state(page, "completed")


def answers(page: Page) -> Locator:
    return page.locator("section.answer")


def turns(page: Page) -> Locator:
    return page.locator("section.turn")


def documents(within: Page | Locator) -> Locator:
    return within.locator("article[data-type]")


def of_type(within: Page | Locator, type: str) -> Locator:
    return within.locator(f"article[data-type={type}]")


def expect_types(within: Page | Locator, types: Sequence[str]) -> None:
    """All documents that are shown, in this order."""
    expect(documents(within)).to_have_count(len(types))
    shown = documents(within).evaluate_all("all => all.map((one) => one.dataset.type)")
    assert shown == list(types)


def expect_state(page: Page, state: str) -> None:
    """Of the last answer."""
    expect(answers(page).last.locator("[data-run]")).to_have_attribute("data-run", state)


def choose(page: Page, picker: str, option: str) -> None:
    """Of the pickers in the prompt box: Mode, Model or Folder."""
    page.get_by_role("button", name=f"{picker}:").click()
    page.get_by_role("option", name=option).first.click()


def choose_folder(page: Page, path: str) -> None:
    page.get_by_role("button", name="Folder:").click()
    page.get_by_role("combobox", name="Folder path").fill(path)
    page.get_by_role("option", name=path).first.click()


def menu(page: Page) -> Locator:
    """What can be done with the whole conversation."""
    page.get_by_label("Conversation menu").click()
    return page.locator("#conversation-menu")


def answer_menu(answer: Locator) -> Locator:
    answer.get_by_label("More actions").click()
    return answer.locator(".menu")


def conversations(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Conversations").get_by_role("link")
