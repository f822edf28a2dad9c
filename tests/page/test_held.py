"""An agent that waits (ACP), which the page chooses by itself: its questions and plans are answered in the same run."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway, running_gateway
from tests.page.conftest import Contexts, both_sizes
from tests.page.using import answers, ask, expect_state, of_type
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


@pytest.mark.parametrize("decision", ["Accept", "Reject"])
def test_a_plan_is_decided_in_the_same_answer(held_page: Page, decision: str) -> None:
    ask(held_page, "standin: plan")
    expect_state(held_page, "waiting")
    plan = of_type(held_page, "plan")
    expect(plan).to_contain_text("Dump, load, switch")
    plan.get_by_role("button", name=decision).click()
    expect_state(held_page, "completed")
    expect(answers(held_page)).to_have_count(1)
