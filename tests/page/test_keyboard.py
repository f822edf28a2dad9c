"""The whole page without a mouse."""

from playwright.sync_api import Locator, Page, expect

from tests.page.scripts import Script
from tests.page.using import answers, documents, expect_state, of_type, prompt_box
from tests.server.conftest import unique

_MOST_STEPS = 80


def walk_to(page: Page, target: Locator, key: str = "Tab") -> None:
    for _ in range(_MOST_STEPS):
        if target.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} does not lead to {target}")


def test_a_whole_conversation(page: Page, script: Script) -> None:
    expect(prompt_box(page)).to_be_focused()  # so that one may write at once
    page.keyboard.type("Two lines:")
    page.keyboard.press("Shift+Enter")
    page.keyboard.insert_text(script.say("Well:").question("Which file?", "notes.txt", "other.txt").prompt())
    page.keyboard.press("Enter")
    expect_state(page, "completed")
    expect(prompt_box(page)).to_be_focused()
    walk_to(page, of_type(page, "clarification").get_by_role("button", name="Answer"), "Shift+Tab")
    walk_to(page, of_type(page, "clarification").get_by_role("textbox"), "Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    expect(of_type(page, "clarification").get_by_role("radio", checked=True)).to_have_count(1)
    page.keyboard.press("ArrowDown")
    walk_to(page, of_type(page, "clarification").get_by_role("button", name="Answer"))
    page.keyboard.press("Enter")
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    walk_to(page, prompt_box(page))
    page.keyboard.type("And a third turn")
    page.keyboard.press("Enter")
    expect(documents(answers(page).nth(2))).to_contain_text("And a third turn")
    expect_state(page, "completed")


def test_escape_stops_the_agent(page: Page, script: Script) -> None:
    page.keyboard.insert_text(script.say("Half").gate("never").say(" and whole.").prompt())
    page.keyboard.press("Enter")
    expect(of_type(page, "text")).to_have_text("Half")
    page.keyboard.press("Escape")
    expect_state(page, "stopped")


def test_keys_lead_to_the_search_to_a_conversation_and_to_a_new_one(page: Page) -> None:
    title = unique()
    page.keyboard.insert_text(title)
    page.keyboard.press("Enter")
    expect_state(page, "completed")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("n")
    expect(answers(page)).to_have_count(0)
    expect(prompt_box(page)).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(title)
    link = page.get_by_role("navigation", name="Conversations").get_by_role("link")
    expect(link).to_have_count(1)
    expect(link).to_contain_text(title)
    walk_to(page, link)
    page.keyboard.press("Enter")
    expect(answers(page)).to_have_count(1)


def test_help_tells_the_keys_and_closes(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_the_first_stop_leads_to_the_prompt(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")
    skip = page.get_by_role("link", name="Skip to the prompt")
    walk_to(page, skip, "Tab")
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(prompt_box(page)).to_be_focused()


def test_what_has_the_focus_can_be_seen(page: Page, script: Script) -> None:
    """Each stop on the way through an answer is marked, and none is outside of the window."""
    page.keyboard.insert_text(script.read("a.txt", "a\n").say("```python\nx = 1\n```\n").shell("true", "ran").prompt())
    page.keyboard.press("Enter")
    expect_state(page, "completed")
    page.get_by_role("link", name="Skip to the prompt").focus()
    stops: list[str] = []
    for _ in range(_MOST_STEPS):
        page.keyboard.press("Tab")
        name, is_marked = page.evaluate(
            """() => {
                const one = document.activeElement;
                const style = getComputedStyle(one);
                const box = getComputedStyle(one.closest('form') ?? one);
                const isMarked = style.outlineStyle !== 'none' || box.boxShadow !== 'none';
                const name = `${one.tagName} ${one.id || one.className || one.textContent}`;
                return [one === document.body ? '' : name, isMarked];
            }"""
        )
        if not name:
            break
        stops.append(name)
        assert is_marked, name
    assert len(stops) > 10
