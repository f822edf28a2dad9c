"""An agent that waits, which the page chooses by itself: its questions and plans are answered in the same run."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway, running_gateway
from tests.page.conftest import Contexts, both_sizes
from tests.page.using import answers, ask, expect_state, of_type
from tests.server.test_caller_tools import program
from tests.server.test_leaks import ended_agents

pytestmark = both_sizes


@pytest.fixture(scope="package")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with ended_agents(tmp_path_factory.mktemp("holding")) as home, running_gateway(home) as running:
        yield running


@pytest.fixture
def held_page(holding: RunningGateway, contexts: Contexts, window: dict[str, Any]) -> Page:
    page = contexts(**window).new_page()
    page.goto(f"{holding.url}/")
    return page


def test_a_question_is_answered_in_the_same_answer(held_page: Page) -> None:
    ask(held_page, "standin: question")
    expect_state(held_page, "waiting")
    question = of_type(held_page, "clarification")
    question.get_by_role("radio", name="other.txt").check()
    question.get_by_role("button", name="Answer").click()
    expect_state(held_page, "completed")
    expect(answers(held_page)).to_have_count(1)
    expect(of_type(held_page, "text").last).to_be_visible()


@pytest.fixture(scope="package")
def plain_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Without ACP."""
    home = tmp_path_factory.mktemp("plain")
    with ended_agents(home), running_gateway(home, settings={"source": "cli"}) as running:
        yield running


def test_a_question_of_the_plain_cli_waits_as_well(
    plain_cli: RunningGateway, contexts: Contexts, window: dict[str, Any]
) -> None:
    page = contexts(**window).new_page()
    page.goto(f"{plain_cli.url}/")
    questions = [{"question": "Which files?", "options": ["a.txt", "b.txt", "c.txt"], "multiple": True}]
    questions.append({"question": "Why?"})
    arguments = {"title": "Before I begin", "questions": questions}
    ask(page, program({"call": "ask_user", "args": arguments}, {"say": "So: $1"}))
    expect_state(page, "waiting")
    form = of_type(page, "clarification")
    expect(form).to_contain_text("Before I begin")
    for name in ("a.txt", "c.txt"):
        form.get_by_role("checkbox", name=name).check()
    form.get_by_role("textbox").last.fill("They are old.")
    form.get_by_role("button", name="Answer").click()
    expect_state(page, "completed")
    expect(answers(page)).to_have_count(1)
    expect(of_type(page, "text").last).to_contain_text("They are old.")
    expect(of_type(page, "text").last).not_to_contain_text("b.txt")
    expect(of_type(page, "tool_call")).to_have_count(0)


@pytest.mark.parametrize("decision", ["Accept", "Reject"])
def test_a_plan_is_decided_in_the_same_answer(held_page: Page, decision: str) -> None:
    ask(held_page, "standin: plan")
    expect_state(held_page, "waiting")
    plan = of_type(held_page, "plan")
    expect(plan).to_contain_text("Dump, load, switch.")  # the plan itself, not only its overview
    plan.get_by_role("button", name=decision).click()
    expect_state(held_page, "completed")
    expect(answers(held_page)).to_have_count(1)
    expect(plan.get_by_role("button")).to_have_count(0)
    held_page.reload()
    expect(of_type(held_page, "plan")).to_contain_text("Dump, load, switch")
    expect(of_type(held_page, "plan").get_by_role("button")).to_have_count(0)


def test_a_conversation_gets_the_agents_own_title(held_page: Page) -> None:
    words = program({"say": "Done."})
    ask(held_page, f"fix the failing tests\n{words}")
    expect_state(held_page, "completed")
    heading = held_page.get_by_role("heading", level=1).locator("visible=true")
    expect(heading).to_have_text("Fix The Failing Tests")
    held_page.get_by_label("Conversation menu").click()
    held_page.get_by_role("button", name="Rename").click()
    held_page.get_by_label("Title").fill("My own")
    held_page.keyboard.press("Enter")
    expect(heading).to_have_text("My own")
    ask(held_page, f"and now?\n{words}")
    expect_state(held_page, "completed")
    held_page.reload()
    expect(heading).to_have_text("My own")
