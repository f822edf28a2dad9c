"""What a person can do about a run: stop it, answer its questions, decide about its plan."""

import time

import pytest
from playwright.sync_api import Page, Route, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.scripts import Script
from tests.page.using import answers, ask, documents, expect_state, of_type, prompt_box, turns
from tests.server.conftest import eventually, invocation, is_gone, unique


def test_stop_ends_the_agent_and_keeps_what_it_said(page: Page, gateway: RunningGateway, script: Script) -> None:
    mark = unique()
    ask(page, script.say("Half of it").gate("never").say(" and the rest.").prompt(mark))
    expect(of_type(page, "text")).to_have_text("Half of it")
    page.get_by_role("button", name="Stop").click()
    expect_state(page, "stopped")
    expect(of_type(page, "text")).to_have_text("Half of it")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    pid = invocation(gateway, mark)["pid"]
    eventually(lambda: is_gone(pid))


def test_a_message_cannot_be_sent_while_the_agent_works(page: Page, script: Script) -> None:
    ask(page, script.say("Working").gate("1").say(" still.").prompt())
    expect(of_type(page, "text")).to_have_text("Working")
    expect(page.get_by_role("button", name="Send")).to_be_hidden()
    prompt_box(page).fill("The next one, written early")
    prompt_box(page).press("Enter")
    expect(answers(page)).to_have_count(1)
    script.open("1")
    expect_state(page, "completed")
    expect(prompt_box(page)).to_have_value("The next one, written early")


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
    expect(question.get_by_role("radio", name="notes.txt")).to_be_disabled()
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
    page.get_by_role("combobox", name="Model").select_option(label="GPT-5 Mini")
    page.get_by_role("combobox", name="Mode", exact=True).select_option("ask")
    ask(page, mark)
    expect_state(page, "completed")
    argv = invocation(gateway, mark)["argv"]
    assert argv[argv.index("--model") + 1] == "gpt-5-mini"
    assert argv[argv.index("--mode") + 1] == "ask"


def test_what_the_gateway_refuses_is_told_and_can_be_sent_again(page: Page, watch: list[Watch]) -> None:
    watch[0].allow("status of 40[03]")
    page.get_by_label("Folder").fill("/nowhere/at/all")
    ask(page, "Where am I?")
    expect(page.get_by_role("alert")).to_contain_text("folder")
    expect(prompt_box(page)).to_have_value("Where am I?")
    page.get_by_label("Folder").fill("")
    page.get_by_role("button", name="Send").click()
    expect_state(page, "completed")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_run_that_fails_says_why(page: Page) -> None:
    ask(page, "standin: fail-quota")
    expect_state(page, "error")
    expect(of_type(page, "error")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
