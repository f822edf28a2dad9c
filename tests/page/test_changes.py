"""What the agent did: changed files, commands, to-dos and figures, apart from the answer."""

from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.conftest import PHONE, Contexts, both_sizes, opened
from tests.page.scripts import Script
from tests.page.using import answers, ask, ask_and_wait, expect_state, menu, of_type, prompt_box
from tests.server.conftest import unique


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_changed_files_are_listed_with_their_edits_combined(
    contexts: Contexts, gateway: RunningGateway, script: Script, size: str
) -> None:
    page = opened(contexts(**(PHONE if size == "phone" else {})), gateway.url)
    script.edit("a.py", "x = 1\ny = 2\n", "x = 2\ny = 2\n").edit("a.py", "x = 2\ny = 2\n", "x = 3\ny = 2\n")
    script.edit("b.py", "", "one\ntwo\n").shell("make all", "made")
    ask_and_wait(page, script.say("Done.").prompt())
    button = page.get_by_role("button", name="Changes: 2 files")
    button.click()
    panel = page.get_by_role("complementary", name="Changes")
    expect(panel).to_contain_text("2 files changed")
    first = panel.locator("details").filter(has_text="a.py")
    expect(first.locator(".counts").first).to_have_text("+1 −1")
    first.locator("summary").click()
    expect(first.locator(".diffview ins")).to_have_text("x = 3")
    expect(first).not_to_contain_text("x = 2")
    expect(panel.get_by_role("listitem")).to_contain_text("make all")
    expect(panel.get_by_role("listitem")).to_contain_text("exit 0")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
    expect(button).to_be_focused()
    button.click()
    panel.get_by_role("link", name="make all").click()
    expect(of_type(page, "terminal_command")).to_be_in_viewport()
    if size == "phone":
        expect(panel).to_be_hidden()  # it would cover the command


def test_in_a_narrower_window_the_changes_take_the_room_of_the_sidebar(page: Page, script: Script) -> None:
    page.set_viewport_size({"width": 1024, "height": 768})
    ask_and_wait(page, script.edit("a.py", "x\n", "y\n").say("Done.").prompt())
    sidebar, panel = page.locator("#sidebar"), page.get_by_role("complementary", name="Changes")
    page.get_by_role("button", name="Changes: 1 file").click()
    expect(panel).to_be_visible()
    expect(sidebar).to_be_hidden()
    left, right = of_type(page, "text").bounding_box(), panel.bounding_box()
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]
    page.get_by_role("button", name="Conversations").click()
    expect(sidebar).to_be_visible()
    page.keyboard.press("Escape")
    panel.get_by_role("button", name="Close").click()
    expect(sidebar).to_be_visible()


@both_sizes
def test_steps_one_after_another_are_one_line_when_the_answer_is_complete(page: Page, script: Script) -> None:
    for name in ("a.py", "b.py", "c.py"):
        script.read(name, f"{name}\n")
    ask(page, script.gate("end").say("Three files.").read("d.py", "d\n").prompt())
    calls = of_type(page, "tool_call")
    expect(calls).to_have_count(3)
    expect(calls.last).to_be_visible()
    script.open("end")
    expect_state(page, "completed")
    for _ in range(2):
        steps = answers(page).get_by_text("3 steps")
        expect(steps).to_be_visible()
        expect(calls.first).to_be_hidden()
        expect(calls.last).to_be_visible()  # it is alone
        steps.click()
        expect(calls.first).to_be_visible()
        page.reload()


def test_an_open_panel_follows_the_conversation(page: Page, script: Script) -> None:
    ask(page, script.edit("a.py", "x\n", "y\n").gate("1").edit("b.py", "x\n", "y\n").prompt())
    page.get_by_role("button", name="Changes: 1 file").click()
    panel = page.get_by_role("complementary", name="Changes")
    expect(panel).to_contain_text("1 file changed")
    expect(panel.locator(".diffview ins")).to_have_text("y")  # a single file is open at once
    expect(panel.locator(".diffview ins")).to_be_visible()
    script.open("1")
    expect(panel).to_contain_text("2 files changed")
    expect(panel.locator("details[open]")).to_have_count(1)
    page.get_by_role("link", name="Runs").click()
    expect(panel).to_be_hidden()
    page.go_back()
    expect(panel).to_be_visible()
    page.get_by_role("link", name="New conversation").click()
    expect(panel).to_be_hidden()


@both_sizes
def test_a_command_that_failed_is_shown_once(demo_page: Page) -> None:
    ask_and_wait(demo_page, "Implement JWT authentication")
    expect(of_type(demo_page, "terminal_command").filter(has_text="exit 2")).to_have_count(1)
    for error in of_type(demo_page, "error").all():
        expect(error).to_be_hidden()


@both_sizes
def test_to_dos_are_pinned_while_the_agent_works(page: Page, script: Script) -> None:
    script.plan("Move", [("a", "Pack the boxes"), ("b", "Carry them")]).gate("1")
    ask(page, script.todos(("a", "Pack the boxes", "COMPLETED")).gate("2").say("Moved.").prompt())
    pinned = page.locator("#todos")
    expect(pinned).to_contain_text("0 of 2 done")
    script.open("1")
    expect(pinned).to_contain_text("1 of 2 done")
    pinned.locator("summary").click()
    expect(pinned.get_by_text("Carry them")).to_be_visible()
    script.open("2")
    expect_state(page, "completed")
    expect(pinned).to_be_hidden()


@both_sizes
def test_a_stopped_run_is_no_error(page: Page, script: Script) -> None:
    ask(page, script.say("Half").gate("never").prompt())
    expect(of_type(page, "text")).to_have_text("Half")
    page.get_by_role("button", name="Stop").click()
    expect_state(page, "stopped")
    stopped = page.get_by_role("article", name="Stopped")
    expect(stopped).to_be_visible()
    expect(stopped).not_to_contain_text("CANCELLED")
    assert "Stopped" in answers(page).inner_text()


@both_sizes
def test_tokens_and_time_are_shown_for_each_turn_and_in_all(page: Page, script: Script, size: str) -> None:
    ask_and_wait(page, script.say("One.").prompt())
    ask_and_wait(page, script.prompt())
    expect(answers(page).last).to_contain_text("1,545 tokens")
    total = page.locator("#total") if size == "desktop" else menu(page).locator("#menu-total")
    expect(total).to_be_visible()
    expect(total).to_contain_text("3,090 tokens")


@both_sizes
def test_a_button_leads_to_the_end(page: Page, script: Script) -> None:
    ask_and_wait(page, script.say("line\n\n" * 200).prompt())
    button = page.get_by_role("button", name="Jump to the end")
    expect(button).to_be_hidden()
    page.evaluate("scrollTo(0, 0)")
    button.click()
    expect(page.get_by_role("button", name="Copy answer")).to_be_in_viewport()
    expect(button).to_be_hidden()


def test_conversations_are_grouped_by_date(contexts: Contexts, gateway: RunningGateway) -> None:
    context = contexts()
    page = opened(context, gateway.url)
    ask_and_wait(page, unique())
    page.evaluate("localStorage.setItem('grouping', 'date')")  # other tests use several folders
    page = context.new_page()
    for days, name in ((0, "Today"), (1, "Yesterday"), (5, "Previous 7 days"), (20, "Previous 30 days"), (90, "Older")):
        page.clock.set_fixed_time(datetime.now(UTC).timestamp() + days * 86400)
        page.goto(gateway.url)
        page.reload()
        headings = page.get_by_role("navigation", name="Conversations").get_by_role("heading")
        expect(headings.first).to_have_text(name)


def test_a_run_that_was_started_elsewhere_is_seen_in_the_sidebar(
    page: Page, contexts: Contexts, gateway: RunningGateway, script: Script
) -> None:
    mark = unique()
    page.clock.install()
    page.reload()
    expect(prompt_box(page)).to_be_editable()
    other = opened(contexts(), gateway.url)
    ask(other, script.say("Working").gate("1").prompt(mark))
    expect(of_type(other, "text")).to_have_text("Working")
    page.clock.fast_forward(16_000)  # until the page looks at its list again
    listed = page.get_by_role("navigation", name="Conversations").get_by_role("link").filter(has_text=mark)
    expect(listed).to_contain_text("Working")
    script.open("1")
    expect_state(other, "completed")
    page.clock.fast_forward(4_000)
    expect(listed).not_to_contain_text("Working")
