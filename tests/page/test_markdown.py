"""Markdown as people expect it; what cannot be drawn here is clearly shown as its source."""

from playwright.sync_api import Page, expect

from tests.page.browsers import Watch
from tests.page.conftest import both_sizes
from tests.page.scripts import Script
from tests.page.using import answers, ask_and_wait, of_type

pytestmark = both_sizes

_TEXT = """The *quick* **brown fox** jumps over the lazy dog. It costs $5 and $10, not $6 or (see
https://example.com/a_(b)), https://example.com/x.

1. Then $x^2$:
   - nested `code`
     - deeper
2. Two

   ```py
   x = 1
   ```

   and \\(a_1\\).

\\[ \\frac{1}{2} \\]

| a | b |
|---|--:|
| **1** | $y$ |

שלום עולם <svg onload=alert(1)>
"""
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
    expect(of_type(page, "code_block")).to_contain_text("Mermaid diagram")  # its source, until it is drawn


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


def test_a_diagram_is_drawn_and_its_source_is_one_click_away(page: Page, script: Script) -> None:
    text = "```mermaid\ngraph TD\n  A[Request] --> B{Known?}\n  B -->|yes| C[Answer]\n```\n"
    ask_and_wait(page, script.say(text).prompt())
    code = of_type(page, "code_block")
    for _ in range(2):
        drawing = code.frame_locator("iframe.diagram").locator("svg")
        expect(drawing).to_be_visible()
        expect(drawing).to_contain_text("Known?")
        assert code.locator("iframe").evaluate("it => it.clientHeight") > 100
        expect(code.locator("figcaption")).to_contain_text("Mermaid diagram")
        expect(code.locator("pre code")).not_to_be_visible()
        code.get_by_text("Source", exact=True).click()
        expect(code.locator("pre code")).to_contain_text("A[Request]")
        page.reload()


def test_without_the_extra_a_diagram_is_source_and_says_how_it_would_be_drawn(
    page: Page, script: Script, watch: list[Watch]
) -> None:
    watch[-1].allow("status of 404")
    page.context.route("**/page/diagram.html", lambda route: route.fulfill(status=404))
    ask_and_wait(page, script.say("```mermaid\ngraph TD\n  A --> B\n```\n").prompt())
    code = of_type(page, "code_block")
    expect(code.locator("figcaption")).to_contain_text("To see it drawn: pipx install '.[diagrams]'")
    expect(code.locator("pre code")).to_contain_text("A --> B")
    expect(code.locator("iframe")).to_have_count(0)


def test_text_one_character_at_a_time_is_the_same_as_the_whole(page: Page, script: Script) -> None:
    ask_and_wait(page, script.say(*_TEXT).prompt())
    prose = answers(page)
    live = answers(page).locator("article[data-type]").evaluate_all("all => all.map((one) => one.innerHTML)")
    expect(prose).to_contain_text("jumps over the lazy dog. It costs $5 and $10, not $6 or (see")
    assert prose.locator("math").count() == 4
    links = prose.locator("a").evaluate_all("all => all.map((one) => one.href)")
    assert links == ["https://example.com/a_(b)", "https://example.com/x"]
    expect(prose.locator("ol > li > ul > li > ul > li")).to_have_text("deeper")
    expect(prose.locator("p", has_text="שלום")).to_have_css("direction", "rtl")
    expect(prose).to_contain_text("<svg onload=alert(1)>")
    page.reload()
    expect(answers(page).locator("article[data-type]")).to_have_count(len(live))
    assert answers(page).locator("article[data-type]").evaluate_all("all => all.map((one) => one.innerHTML)") == live


def test_a_diagram_that_cannot_be_drawn_stays_source(page: Page, script: Script) -> None:
    ask_and_wait(page, script.say("```mermaid\ngraph TD\n  A[[[\n```\n").prompt())
    code = of_type(page, "code_block")
    expect(code.locator(".problem")).to_contain_text("This diagram cannot be drawn.")
    expect(code.locator("pre code")).to_be_visible()
    expect(code.locator("iframe")).to_have_count(0)


def test_a_diagram_reaches_neither_the_page_nor_the_network(page: Page, script: Script, watch: list[Watch]) -> None:
    """Whatever the model has written: Mermaid's own protection is not what this relies on."""
    for policy in ("Content Security Policy", "error: policy: "):
        watch[-1].allow(policy)
    refused: list[str] = []
    page.context.on("requestfailed", lambda request: refused.append(f"{request.url} {request.failure}"))
    page.context.on("response", lambda response: refused.append(f"{response.url} {response.status}"))
    text = (
        '```mermaid\n%%{init: {"securityLevel": "loose", "htmlLabels": true}}%%\ngraph TD\n'
        "  A[\"<img src='http://127.0.0.1:9/x' onerror='parent.document.title=1'>a\"] --> B\n"
        '  click B "javascript:parent.document.title=2"\n```\n'
    )
    ask_and_wait(page, script.say(text).prompt())
    drawing = of_type(page, "code_block").frame_locator("iframe.diagram").locator("svg")
    expect(drawing).to_be_visible()
    assert {reply for reply in refused if ":9/x" in reply} <= {"http://127.0.0.1:9/x csp"}
    for reach in ("parent.document.title", "localStorage.length", "document.cookie"):
        tried = f"() => {{ try {{ return {reach} }} catch (error) {{ return error.name }} }}"
        assert drawing.evaluate(tried) == "SecurityError"
    assert drawing.evaluate("() => fetch('/v1/models').then(() => 'answered', () => 'refused')") == "refused"
