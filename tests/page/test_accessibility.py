"""axe-core finds nothing serious in the main states of the page, light and dark."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway, running_gateway
from tests.page.browsers import Watch
from tests.page.conftest import Contexts, opened, skip_or_fail
from tests.page.scripts import Script
from tests.page.using import ask, ask_and_wait, choose, choose_folder, expect_state, menu, of_type

AXE = Path(__file__).resolve().parents[2] / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"

schemes = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        skip_or_fail(f"no axe-core: {AXE} does not exist; `make test` installs it where there is npm")
    return AXE.read_text(encoding="utf-8")


def violations(page: Page, axe: str) -> list[str]:
    """The serious and the critical ones, each with the first places."""
    page.evaluate(axe)
    found: list[dict[str, Any]] = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def _demo(contexts: Contexts, demo: RunningGateway, scheme: str, **options: object) -> Page:
    return opened(contexts(color_scheme=scheme, reduced_motion="reduce", **options), demo.url)


@schemes
def test_a_new_conversation_and_the_dialogs(contexts: Contexts, demo: RunningGateway, axe: str, scheme: str) -> None:
    page = _demo(contexts, demo, scheme)
    expect(page.get_by_role("button", name="Fix the failing tests")).to_be_visible()
    assert violations(page, axe) == []
    page.get_by_role("button", name="Help").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page, axe) == []


@schemes
def test_an_answer_with_all_types_of_documents(contexts: Contexts, demo: RunningGateway, axe: str, scheme: str) -> None:
    page = _demo(contexts, demo, scheme)
    ask_and_wait(page, "Implement JWT authentication")
    page.locator("article details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert violations(page, axe) == []
    menu(page)
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Changes:").click()
    expect(page.get_by_role("complementary", name="Changes").locator("details").first).to_be_visible()
    page.locator("#changes details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert violations(page, axe) == []


@schemes
def test_an_answer_that_grows(
    contexts: Contexts, gateway: RunningGateway, axe: str, scheme: str, script: Script
) -> None:
    page = opened(contexts(color_scheme=scheme, reduced_motion="reduce"), gateway.url)
    ask(page, script.say("A **plan**:").plan("Move", [("a", "Pack"), ("b", "Go")]).shell("make", "", gate="1").prompt())
    expect(of_type(page, "terminal_command")).to_have_attribute("data-state", "running")
    assert violations(page, axe) == []
    script.open("1")
    expect_state(page, "completed")
    expect(of_type(page, "plan").get_by_role("button", name="Accept")).to_be_visible()
    assert violations(page, axe) == []


@schemes
def test_a_stopped_answer_and_a_refusal(
    contexts: Contexts, gateway: RunningGateway, axe: str, scheme: str, script: Script, watch: list[Watch]
) -> None:
    page = opened(contexts(color_scheme=scheme, reduced_motion="reduce"), gateway.url)
    watch[0].allow("status of 40")
    page.get_by_role("button", name="Model:").click()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    choose_folder(page, "/nowhere")
    expect(page.get_by_role("alert")).to_be_visible()
    assert violations(page, axe) == []
    choose(page, "Folder", str(gateway.workspace))
    ask(page, script.say("Half").gate("never").prompt())
    expect(of_type(page, "text")).to_have_text("Half")
    page.get_by_role("button", name="Stop").click()
    expect_state(page, "stopped")
    assert violations(page, axe) == []


@schemes
def test_the_dashboard(contexts: Contexts, demo: RunningGateway, axe: str, scheme: str) -> None:
    page = _demo(contexts, demo, scheme)
    ask_and_wait(page, "Fix the failing tests")
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("table")).to_be_visible()
    assert violations(page, axe) == []


@schemes
def test_a_phone(contexts: Contexts, demo: RunningGateway, axe: str, scheme: str) -> None:
    page = _demo(contexts, demo, scheme, viewport={"width": 390, "height": 844})
    ask_and_wait(page, "Store the books in a database")
    assert violations(page, axe) == []
    page.get_by_role("button", name="Conversations").click()
    expect(page.get_by_role("searchbox")).to_be_visible()
    assert violations(page, axe) == []


def test_the_dialog_for_the_key(tmp_path: Path, contexts: Contexts, axe: str, watch: list[Watch]) -> None:
    with running_gateway(tmp_path, has_agent=False, settings={"api_keys": f"me=sha256:{'0' * 64}"}) as locked:
        page = opened(contexts(reduced_motion="reduce"), locked.url)
        watch[0].allow("status of 401")
        expect(page.get_by_role("dialog", name="API key")).to_be_visible()
        assert violations(page, axe) == []


@schemes
def test_changes_under_review(contexts: Contexts, gateway: RunningGateway, axe: str, scheme: str) -> None:
    page = opened(contexts(color_scheme=scheme, reduced_motion="reduce"), gateway.url)
    file = gateway.workspace / "reviewed.py"
    file.write_text("".join(f"{letter}\n" for letter in "abcdefghijklmnop"))  # a long prompt would need a scroll bar
    text = file.read_text().replace("c\n", "C\n").replace("o\n", "")
    steps = [{"native": "edit", "args": {"path": str(file), "streamContent": text}}]
    ask_and_wait(page, f"standin: program\n---\n{json.dumps(steps)}")
    page.get_by_role("button", name="Changes:").click()
    panel = page.get_by_role("complementary", name="Changes")
    expect(panel.get_by_role("button", name="Undo change 2 of reviewed.py")).to_be_visible()
    assert violations(page, axe) == []
    panel.get_by_role("button", name="Side by side").click()
    panel.get_by_label("All changes", exact=True).click()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Changes:").click()
    panel.get_by_role("button", name="Undo file reviewed.py").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Show the lines").click()
    assert violations(page, axe) == []


@schemes
def test_the_palette_the_filter_and_what_was_sent(
    contexts: Contexts,
    gateway: RunningGateway,
    axe: str,
    scheme: str,
    script: Script,
    watch: list[Watch],
    tmp_path: Path,
) -> None:
    page = opened(contexts(color_scheme=scheme, reduced_motion="reduce"), gateway.url)
    watch[0].allow("status of 404")
    page.get_by_label("Filter the list").click()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    (tmp_path / "notes.txt").write_text("one\n")
    page.locator("#files").set_input_files(tmp_path / "notes.txt")
    expect(page.get_by_role("list", name="Attachments").get_by_role("listitem")).to_have_count(1)
    script.say("1. One:\n\n   ```sh\n   x\n   ```\n\n   Then $x^2$.\n\n$$\ny\n$$\n\nAs in ![a](gone.png).")
    script.say("\n\n```mermaid\ngraph TD\n  A --> B\n```\n")
    script.shell("make", "".join(f"\x1b[3{colour}mcolour {colour}\x1b[0m\n" for colour in range(8)) * 4)
    ask_and_wait(page, script.prompt("A long prompt. " * 100))
    page.locator("iframe.diagram").scroll_into_view_if_needed()
    expect(page.frame_locator("iframe.diagram").locator("svg")).to_be_visible()
    page.get_by_text("notes.txt").click()
    page.get_by_text("Source", exact=True).first.click()
    assert violations(page, axe) == []
    page.get_by_role("searchbox", name="Search conversations").fill("prompt")
    expect(page.get_by_role("navigation", name="Conversations").get_by_text("Found")).to_be_visible()
    assert violations(page, axe) == []
    page.goto(f"{gateway.url}/#/c/conv_nowhere")
    expect(page.get_by_text("Conversation not found")).to_be_visible()
    assert violations(page, axe) == []


@schemes
def test_a_shared_conversation(
    contexts: Contexts, sharing: RunningGateway, watch: list[Watch], axe: str, scheme: str
) -> None:
    page = _demo(contexts, sharing, scheme)
    ask_and_wait(page, "standin: text")
    menu(page).get_by_role("button", name="Share a read-only link").click()
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_role("textbox", name="Link")
    expect(link).to_be_visible()
    assert violations(page, axe) == []
    context = contexts(color_scheme=scheme, bypass_csp=True)  # it allows no scripts
    watch[-1].allow("favicon")
    reader = opened(context, link.input_value())
    assert violations(reader, axe) == []
    page.get_by_role("dialog").get_by_role("link", name="Permissions").click()
    expect(page.get_by_role("list", name="Read-only links")).to_be_visible()
    assert violations(page, axe) == []
