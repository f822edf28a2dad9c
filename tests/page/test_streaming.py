"""Documents appear while the agent works: in their order, and growing."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.agent.emitter import now
from tests.page.conftest import both_sizes
from tests.page.scripts import Script
from tests.page.using import answers, ask, ask_and_wait, documents, expect_state, expect_types, of_type, prompt_box

pytestmark = both_sizes

# Of the demo recording: the gate before a line, and the documents that are shown when the agent waits there.
_UP_TO_LINE: dict[int, list[str]] = {
    8: ["thinking"],
    19: ["text"],
    25: ["tool_call"],
    30: ["tool_call", "tool_call"],
    47: ["thinking", "text"],
    56: ["code_reference"],
    67: ["clarification"],
    78: ["thinking", "plan"],
    80: ["file_edit"],
    82: ["todo_update"],
    90: ["file_edit", "file_edit", "todo_update", "file_edit"],
    92: ["terminal_command", "error"],
    102: ["text", "terminal_command"],
    107: ["terminal_command", "todo_update"],
    124: ["thinking", "text"],
    134: ["code_block"],
}
_TEN = "text code_reference code_block file_edit tool_call terminal_command plan clarification error todo_update"


@pytest.mark.smoke
def test_all_ten_types_appear_in_order_while_the_agent_works(page: Page, script: Script) -> None:
    ask(page, script.demo("jwt_authentication", {line: str(line) for line in _UP_TO_LINE}).unfinished_prompt())
    shown: list[str] = []
    for line, types in _UP_TO_LINE.items():
        shown += types
        expect_types(page, shown)
        expect_state(page, "running")
        script.open(str(line))
    expect_state(page, "completed")
    expect_types(page, shown)
    assert set(shown) - {"thinking"} == set(_TEN.split())


def test_text_grows_word_by_word(page: Page, script: Script) -> None:
    ask(page, script.say("Once", " upon").gate("1").say(" a", " time.").gate("2").say("\n\nThe **end**.").prompt())
    text = of_type(page, "text")
    expect(text).to_have_text("Once upon")
    script.open("1")
    expect(text).to_have_text("Once upon a time.")
    expect(page.get_by_role("status")).to_have_text("Working…")
    script.open("2")
    expect(text.locator("strong")).to_have_text("end")
    expect(page.get_by_role("status")).to_have_text("Answer complete")
    expect_types(page, ["text"])


def test_code_grows_line_by_line_and_is_coloured_at_its_end(page: Page, script: Script) -> None:
    script.say("Here:\n\n```python\n", "def one():\n").gate("1").say("    return 1\n").gate("2").say("```\n", "Done.")
    ask(page, script.prompt())
    code = of_type(page, "code_block").locator("[data-part=code]")
    expect(code).to_have_text("def one():\n")
    script.open("1")
    expect(code).to_have_text("def one():\n    return 1\n")
    script.open("2")
    expect_types(page, ["text", "code_block", "text"])
    expect(code).to_have_text("def one():\n    return 1\n")
    expect(code.locator("span").first).to_be_visible()


def test_a_command_is_shown_while_it_runs_and_then_with_its_output(page: Page, script: Script) -> None:
    ask(page, script.shell("make all", "all is made\n", gate="1").prompt())
    command = of_type(page, "terminal_command")
    expect(command).to_contain_text("make all")
    expect(command).to_have_attribute("data-state", "running")
    expect(command).not_to_contain_text("all is made")
    script.open("1")
    expect(command).to_contain_text("all is made")
    expect(command).to_contain_text("exit 0")


def test_a_later_change_ticks_off_the_plan(page: Page, script: Script) -> None:
    script.plan("Move house", [("pack", "Pack the boxes"), ("carry", "Carry them")]).gate("1")
    script.todos(("pack", "Pack the boxes", "COMPLETED")).gate("2")
    script.todos(("carry", "Carry them", "COMPLETED")).say("Done.")
    ask(page, script.prompt())
    items = of_type(page, "plan").locator("li[data-status]")
    expect(items).to_have_count(2)
    assert [one.get_attribute("data-status") for one in items.all()] == ["pending", "pending"]
    script.open("1")
    expect(items.first).to_have_attribute("data-status", "completed")
    expect(of_type(page, "plan")).to_contain_text("1 of 2 done")
    expect(items.last).to_have_attribute("data-status", "pending")
    script.open("2")
    expect(items.last).to_have_attribute("data-status", "completed")
    expect_types(page, ["plan", "todo_update", "todo_update", "text"])


def test_the_reader_is_told_when_the_answer_is_whole(page: Page, script: Script) -> None:
    """Those who listen hear a document when it is whole, not word by word."""
    ask(page, script.say("Half").gate("1").say(" and whole.").prompt())
    expect(of_type(page, "text")).to_have_text("Half")
    expect(page.get_by_role("log")).to_have_count(1)
    expect(of_type(page, "text")).to_have_attribute("aria-busy", "true")
    script.open("1")
    expect(of_type(page, "text")).to_have_text("Half and whole.")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def test_the_next_message_goes_on_with_the_conversation(page: Page, script: Script) -> None:
    ask(page, "The first message")
    expect_state(page, "completed")
    ask(page, "The second message")
    expect(answers(page)).to_have_count(2)
    expect(documents(answers(page).last)).to_contain_text("The second message")
    expect_state(page, "completed")
    expect(prompt_box(page)).to_have_value("")
    expect(page.locator("#conversations a")).not_to_have_count(0)


def test_usage_and_time_are_shown_for_each_answer(page: Page, script: Script) -> None:
    ask(page, script.read("notes.txt", "a").say("Read.").prompt())
    expect_state(page, "completed")
    expect(answers(page)).to_contain_text("1,545 tokens")


def test_thinking_says_how_long_it_took_live_and_later(page: Page, script: Script) -> None:
    script.agent.think("Hm, ")
    script.gate("thought")
    script.agent.think("let me see.")
    script.agent.record({"type": "thinking", "subtype": "completed", "timestamp_ms": now() + 12_000})
    ask(page, script.say("It is done.").prompt())
    thinking = of_type(page, "thinking").locator("summary")
    expect(thinking).to_have_text("Thinking")
    thinking.click()
    script.open("thought")
    expect_state(page, "completed")
    expect(thinking).to_have_text("Thought for 12 s")
    expect(of_type(page, "thinking").locator(".prose")).to_have_text("Hm, let me see.")  # still open
    page.reload()
    expect(thinking).to_have_text("Thought for 12 s")


def test_the_context_is_measured_where_the_model_says_its_size(page: Page, script: Script) -> None:
    ask_and_wait(page, script.say("Done.").prompt())
    expect(page.get_by_role("meter")).to_be_hidden()  # nobody knows the size of this model's context
    facts = answers(page).locator(".facts")
    expect(facts).to_have_attribute("title", "1,200 in, 345 out; Context: 1,545 tokens")
    page.route("**/v1/chat/*?dialect=html", lambda route: route.fulfill(body="<p>Hi</p>", headers=_LARGE))
    page.reload()
    meter = page.locator("#context")  # there is no room for it on a phone
    expect(meter).to_have_attribute("aria-label", "Context: about 150,000 of 200,000 tokens (75 %)")
    expect(facts).to_have_attribute("title", re.compile("Context: about 150,000 of 200,000 tokens$"))


_LARGE = {"x-context": '{"tokens":150000,"window":200000,"isEstimate":true}', "content-type": "text/html"}
