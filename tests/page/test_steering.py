"""What a person can do about a run: stop it, answer its questions, decide about its plan."""

import time

import pytest
from playwright.sync_api import Page, Route, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import both_sizes
from tests.page.scripts import Script
from tests.page.using import answers, ask, choose, choose_folder, documents, expect_state, of_type, prompt_box, turns
from tests.server.conftest import eventually, invocation, is_gone, unique

pytestmark = both_sizes


@pytest.mark.smoke
def test_stop_ends_the_agent_and_keeps_what_it_said(page: Page, gateway: RunningGateway, script: Script) -> None:
    mark = unique()
    ask(page, script.say("Half of it").gate("never").say(" and the rest.").prompt(mark))
    expect(of_type(page, "text")).to_have_text("Half of it")
    page.get_by_role("button", name="Stop").click()
    expect_state(page, "stopped")
    expect(of_type(page, "text")).to_have_text("Half of it")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    pid = invocation(gateway, mark)["pid"]
    eventually(lambda: is_gone(pid))


def test_a_message_waits_in_the_queue_while_the_agent_works(page: Page, script: Script) -> None:
    ask(page, script.say("Working").gate("1").say(" still.").prompt())
    expect(of_type(page, "text")).to_have_text("Working")
    for message in ("The next one", "And one more", "Not this one"):
        prompt_box(page).fill(message)
        prompt_box(page).press("Enter")
    expect(prompt_box(page)).to_have_value("")
    expect(answers(page)).to_have_count(1)
    queue = page.get_by_role("list", name="Queued messages").get_by_role("listitem")
    expect(queue).to_have_count(3)
    queue.last.get_by_role("button", name="Remove from the queue").click()
    expect(queue).to_have_count(2)
    script.open("1")
    expect(answers(page)).to_have_count(3)
    expect_state(page, "completed")
    expect(queue).to_have_count(0)
    expect(documents(answers(page).nth(1))).to_contain_text("The next one")
    expect(documents(answers(page).last)).to_contain_text("And one more")


def test_a_queued_message_outlives_the_window_and_waits_for_its_sender(page: Page, script: Script) -> None:
    ask(page, script.say("Working").gate("1").say(" still.").prompt())
    expect(of_type(page, "text")).to_have_text("Working")
    prompt_box(page).fill("Later")
    prompt_box(page).press("Enter")
    queue = page.get_by_role("list", name="Queued messages").get_by_role("listitem")
    expect(queue).to_have_count(1)
    page.reload()
    expect(of_type(page, "text")).to_have_text("Working")
    expect(queue).to_have_text("Later")
    page.get_by_role("button", name="Stop").click()
    expect_state(page, "stopped")
    expect(queue).to_have_text("Later")  # a stop is no reason to go on
    queue.get_by_role("button", name="Send now").click()
    expect(answers(page)).to_have_count(2)
    expect(documents(answers(page).last)).to_contain_text("Later")


def test_sending_a_queued_message_now_stops_the_agent_first(page: Page, script: Script) -> None:
    ask(page, script.say("Working").gate("never").prompt())
    expect(of_type(page, "text")).to_have_text("Working")
    prompt_box(page).fill("Do this instead")
    prompt_box(page).press("Enter")
    page.get_by_role("button", name="Send now").click()
    expect(answers(page)).to_have_count(2)
    expect(answers(page).first.locator("[data-run]")).to_have_attribute("data-run", "stopped")
    expect(documents(answers(page).last)).to_contain_text("Do this instead")


def test_the_answer_to_a_question_starts_the_next_turn(page: Page, script: Script) -> None:
    ask(page, script.say("I need to know more.").question("Which file is meant?", "notes.txt", "other.txt").prompt())
    expect_state(page, "completed")
    question = of_type(page, "clarification")
    question.get_by_role("radio", name="other.txt").check()
    question.get_by_role("button", name="Answer").click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    expect(turns(page).last).to_contain_text("other.txt")
    expect(documents(answers(page).last).first).to_contain_text("other.txt")  # the agent was told so
    for _ in range(2):
        expect(question).to_contain_text("answered")
        expect(question).not_to_contain_text("went on without you")
        expect(question.get_by_role("radio", name="notes.txt")).to_be_disabled()
        expect(question.get_by_role("radio", name="other.txt")).to_be_checked()
        page.reload()
    expect(question.get_by_role("button", name="Answer")).to_be_hidden()


def test_an_answer_that_is_over_before_it_is_looked_at_is_shown(page: Page, script: Script) -> None:
    ask(page, script.question("Which file is meant?", "notes.txt", "other.txt").prompt())
    expect_state(page, "completed")
    question = of_type(page, "clarification")
    question.get_by_role("radio", name="other.txt").check()

    def late(route: Route) -> None:
        time.sleep(1)  # the agent's turn takes a fraction of it
        route.continue_()

    page.route("**/v1/conversations/conv_*", late)
    question.get_by_role("button", name="Answer").click()
    expect(answers(page)).to_have_count(2)
    expect(documents(answers(page).last).first).to_contain_text("other.txt")


def test_a_question_may_be_answered_in_other_words(page: Page, script: Script) -> None:
    ask(page, script.question("Which file is meant?", "notes.txt", "other.txt").prompt())
    expect_state(page, "completed")
    question = of_type(page, "clarification")
    question.get_by_role("textbox", name="Something else").fill("neither, but third.txt")
    question.get_by_role("textbox", name="Something else").press("Enter")
    expect(answers(page)).to_have_count(2)
    expect(documents(answers(page).last).first).to_contain_text("third.txt")


def test_a_question_that_is_left_open_is_not_sent(page: Page, script: Script) -> None:
    ask(page, script.question("Which file is meant?", "notes.txt", "other.txt").prompt())
    expect_state(page, "completed")
    of_type(page, "clarification").get_by_role("button", name="Answer").click()
    expect(page.get_by_role("alert")).to_contain_text("question")
    expect(answers(page)).to_have_count(1)
    expect(of_type(page, "clarification").get_by_role("radio").first).to_be_focused()


@pytest.mark.parametrize("decision", ["Accept", "Reject"])
def test_a_plan_is_accepted_or_rejected(page: Page, script: Script, decision: str) -> None:
    ask(page, script.plan("Move house", [("pack", "Pack the boxes"), ("carry", "Carry them")]).prompt())
    expect_state(page, "completed")
    plan = of_type(page, "plan")
    plan.get_by_role("textbox", name="Comment").fill("Mind the piano")
    plan.get_by_role("button", name=decision).click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    expect(documents(answers(page).last).first).to_contain_text("Mind the piano")
    expect(plan.get_by_role("button", name=decision)).to_be_hidden()


def test_the_mode_and_the_model_are_what_was_chosen(page: Page, gateway: RunningGateway) -> None:
    mark = unique()
    page.get_by_role("button", name="Model:").click()
    page.get_by_role("combobox", name="Search models").fill("5 mini")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    choose(page, "Mode", "Ask")
    ask(page, mark)
    expect_state(page, "completed")
    argv = invocation(gateway, mark)["argv"]
    assert argv[argv.index("--model") + 1] == "gpt-5-mini"
    assert argv[argv.index("--mode") + 1] == "ask"


def test_what_the_gateway_refuses_is_shown_and_can_be_sent_again(
    page: Page, gateway: RunningGateway, watch: list[Watch]
) -> None:
    watch[0].allow("status of 40[03]")
    prompt_box(page).fill("Where am I?")
    choose_folder(page, "/nowhere/at/all")
    line = f'workspace_roots = ["{gateway.workspace}", "/nowhere/at/all"]'
    expect(page.get_by_role("alert")).to_contain_text(line)  # at once, and what to do
    expect(page.get_by_role("button", name=f"Folder: {gateway.workspace.name}")).to_be_visible()
    expect(prompt_box(page)).to_have_value("Where am I?")
    choose(page, "Folder", str(gateway.workspace))
    page.get_by_role("button", name="Send", exact=True).click()
    expect_state(page, "completed")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_run_that_fails_says_why(page: Page) -> None:
    ask(page, "standin: fail-quota")
    expect_state(page, "error")
    expect(of_type(page, "error")).to_be_visible()
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
