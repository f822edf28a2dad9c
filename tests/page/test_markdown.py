"""Markdown as people expect it; what cannot be drawn here is clearly shown as its source."""

from playwright.sync_api import Page, expect

from tests.page.conftest import both_sizes
from tests.page.scripts import Script
from tests.page.using import ask_and_wait, of_type

pytestmark = both_sizes

LONG = "\n".join(f"print({number})" for number in range(60))


def test_task_lists_footnotes_and_formulas(page: Page, script: Script) -> None:
    text = "- [ ] Pack\n- [x] Go\n\nSee[^1].\n\n[^1]: vanished\n\n$$\nx^2\n$$\n\n"
    ask_and_wait(page, script.say(*text).say("```mermaid\ngraph TD\n```\n").prompt())
    prose = of_type(page, "text").first
    expect(prose.get_by_role("img", name="To do")).to_be_visible()
    expect(prose.get_by_role("img", name="Done")).to_be_visible()
    expect(prose).to_contain_text("vanished")
    expect(prose.locator("sup").first).to_have_text("1")
    assert prose.locator("figure math msup").evaluate("it => it instanceof MathMLElement")  # the browser draws it
    expect(of_type(page, "code_block")).to_contain_text("Mermaid diagram (source)")


def test_long_code_is_folded_live_and_later(page: Page, script: Script) -> None:
    ask_and_wait(page, script.say("```python\n", *(f"{line}\n" for line in LONG.split("\n")), "```\n").prompt())
    code = of_type(page, "code_block")
    for _ in range(2):
        listing = code.locator(".listing")
        folded = listing.bounding_box()
        code.get_by_text("Show all 60 lines").click()
        expect(code.locator("details")).to_have_attribute("open", "")
        whole = listing.bounding_box()
        assert folded is not None
        assert whole is not None
        assert whole["height"] > 2 * folded["height"]
        page.reload()
