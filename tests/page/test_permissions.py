"""A command that needs permission is allowed, denied and revoked on the page, whether or not the agent waits for it."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway, running_gateway
from tests.page.conftest import Contexts, both_sizes, opened
from tests.page.scripts import Script
from tests.page.test_held import held_page, holding  # noqa: F401 -- fixtures
from tests.page.using import answers, ask, expect_state, of_type, prompt_box
from tests.server.conftest import TIMEOUT, eventually, http_client, question, unique
from tests.server.test_leaks import ended_agents


def counter(workspace: Path) -> tuple[str, Path]:
    """A prompt that runs a program, and the file to which that adds a line each time."""
    mark = unique()
    (workspace / f"{mark}.py").write_text(f"open({str(workspace / mark)!r}, 'a').write('ran\\n')\n")
    return f'{mark} standin: shell command="python3 {mark}.py"', workspace / mark


def times(ran: Path) -> int:
    return len(ran.read_text().splitlines()) if ran.exists() else 0


def rejected(page: Page, prompt: str) -> None:
    ask(page, prompt)
    expect_state(page, "waiting")
    expect(of_type(page, "terminal_command").last).to_contain_text("needs permission")


@pytest.mark.smoke
@both_sizes
def test_a_rejected_command_is_allowed_once_and_runs_once(page: Page, gateway: RunningGateway) -> None:
    prompt, ran = counter(gateway.workspace)
    rejected(page, prompt)
    command = of_type(page, "terminal_command").first
    expect(command).to_contain_text("Shell(python3)")
    assert times(ran) == 0
    command.get_by_role("button", name="Allow once").click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    expect(of_type(answers(page).last, "terminal_command")).to_contain_text("exit 0")
    expect(command).to_contain_text("Allowed once.")
    expect(page.locator(".turn > .note")).to_have_text(re.compile("^You allowed `.*` once.$"))
    expect(page.locator(".turn > .asked")).to_have_count(1)  # what was asked for
    expect(command.get_by_role("button", name="Allow once")).to_have_count(0)
    assert times(ran) == 1


@both_sizes
def test_what_a_client_was_refused_is_allowed_by_its_link(page: Page, gateway: RunningGateway) -> None:
    prompt, ran = counter(gateway.workspace)
    with http_client(gateway) as client:
        (call,) = client.post("/v1/chat/completions", json=question(prompt)).json()["cursor"]["refused"]
    page.goto(call["url"])
    once = of_type(page, "terminal_command").last.get_by_role("button", name="Allow once")
    expect(once).to_be_focused()
    expect(once).to_be_in_viewport()
    once.click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    assert times(ran) == 1


@both_sizes
def test_a_rule_is_shown_and_revoked(page: Page, gateway: RunningGateway) -> None:
    prompt, ran = counter(gateway.workspace)
    rejected(page, prompt)
    of_type(page, "terminal_command").first.get_by_role("button", name="Always in this conversation").click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    ask(page, prompt)
    expect(answers(page)).to_have_count(3)
    expect_state(page, "completed")
    assert times(ran) == 2
    page.reload()
    first = of_type(answers(page).first, "terminal_command")
    expect(first).to_contain_text("Allowed in this conversation.")
    expect(page.locator(".turn > .note")).to_have_text(re.compile("^You allowed `.*` from now on.$"))
    expect(page.locator(".turn > .asked")).to_have_count(2)  # nobody wrote what the agent is told of it
    first.get_by_role("button", name="Revoke").click()
    expect(first).to_contain_text("Revoked.")
    rejected(page, prompt)
    assert times(ran) == 2


@both_sizes
def test_a_denial_with_a_reason_reaches_the_agent(page: Page, gateway: RunningGateway) -> None:
    prompt, ran = counter(gateway.workspace)
    rejected(page, prompt)
    command = of_type(page, "terminal_command").first
    command.get_by_role("textbox", name="Reason").fill("Use pnpm here.")
    command.get_by_role("button", name="Deny").click()
    expect(answers(page)).to_have_count(2)
    expect(answers(page).last).to_contain_text("Use pnpm here.")
    expect(command).to_contain_text("Denied.")
    assert times(ran) == 0


@both_sizes
def test_a_denial_without_a_reason_starts_nothing(page: Page, gateway: RunningGateway) -> None:
    prompt, _ = counter(gateway.workspace)
    rejected(page, prompt)
    command = of_type(page, "terminal_command").first
    status = page.get_by_role("status").first
    expect(status).to_have_text("A command above needs your permission")
    listed = page.locator("#conversations [aria-current]")  # behind a button on a phone
    expect(listed).to_contain_text("Waiting for you")
    expect(page).to_have_title(re.compile(r"^\(\d+\) "))
    page.reload()
    expect(status).to_have_text("A command above needs your permission")
    command.get_by_role("button", name="Deny").click()
    expect(command).to_contain_text("Denied.")
    expect(status).not_to_have_text("A command above needs your permission")
    expect(listed).not_to_contain_text("Waiting for you")
    expect_state(page, "completed")
    expect(answers(page)).to_have_count(1)


@pytest.mark.parametrize(("button", "runs"), [("Allow once", 1), ("Deny", 0)])
def test_an_agent_that_waits_goes_on_in_the_same_answer(
    held_page: Page,  # noqa: F811 -- the fixture
    holding: RunningGateway,  # noqa: F811
    button: str,
    runs: int,
) -> None:
    prompt, ran = counter(holding.workspace)
    ask(held_page, prompt)
    expect_state(held_page, "waiting")
    asked = of_type(held_page, "clarification")
    expect(asked).to_contain_text("waiting for you")
    listed = held_page.get_by_role("navigation", name="Conversations").get_by_role("link").first
    expect(listed).to_contain_text("Waiting for you")
    assert held_page.title().startswith("(")
    prompt_box(held_page).fill("Something else")
    prompt_box(held_page).press("Enter")
    expect(held_page.get_by_role("alert")).to_contain_text("waiting for your answer")
    expect(prompt_box(held_page)).to_have_value("Something else")
    asked.get_by_role("button", name=button).click()
    expect_state(held_page, "completed")
    expect(answers(held_page)).to_have_count(1)
    assert times(ran) == runs


@both_sizes
def test_each_undecided_command_keeps_its_buttons(page: Page, gateway: RunningGateway) -> None:
    prompt, ran = counter(gateway.workspace)
    (gateway.workspace / "touched.sh").write_text(f"echo ran >> {ran}.other\n")
    ask(page, f'{prompt} then="sh touched.sh"')
    expect_state(page, "waiting")
    first, second = (of_type(answers(page).first, "terminal_command").nth(place) for place in (0, 1))
    first.get_by_role("button", name="Allow once").click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    assert times(ran) == 1
    expect(first).to_contain_text("Allowed once.")
    page.reload()
    expect(first).to_contain_text("Allowed once.")
    second.get_by_role("button", name="Allow once").click()
    expect(answers(page)).to_have_count(3)
    expect_state(page, "completed")
    expect(second).to_contain_text("Allowed once.")
    assert (times(ran), times(Path(f"{ran}.other"))) == (1, 1)


@both_sizes
def test_decisions_made_while_the_agent_works_are_sent_together_afterwards(
    page: Page, gateway: RunningGateway, script: Script
) -> None:
    prompt, ran = counter(gateway.workspace)
    (gateway.workspace / "touched.sh").write_text(f"echo ran >> {ran}.other\n")
    ask(page, f'{prompt} then="sh touched.sh"')
    expect_state(page, "waiting")
    commands = of_type(answers(page).first, "terminal_command")
    ask(page, script.say("Busy. ").gate("end").say("Done.").prompt())
    expect_state(page, "running")
    for place in (0, 1):
        commands.nth(place).get_by_role("button", name="Allow once").click()
        expect(commands.nth(place)).to_contain_text("This will be sent when the agent is done.")
    assert times(ran) == 0
    script.open("end")
    expect(answers(page)).to_have_count(3)
    expect_state(page, "completed")
    expect(answers(page)).to_have_count(3)
    for place in (0, 1):
        expect(commands.nth(place)).to_contain_text("Allowed once.")
    assert (times(ran), times(Path(f"{ran}.other"))) == (1, 1)


@both_sizes
def test_a_waiting_agent_keeps_asking_for_what_is_undecided(
    held_page: Page,  # noqa: F811 -- the fixture
    holding: RunningGateway,  # noqa: F811
) -> None:
    prompt, ran = counter(holding.workspace)
    (holding.workspace / "touched.sh").write_text(f"echo ran >> {ran}.other\n")
    ask(held_page, f'{prompt} then="sh touched.sh"')
    asked = of_type(held_page, "clarification")
    for place, button in enumerate(("Always in this conversation", "Deny")):
        expect_state(held_page, "waiting")
        asked.nth(place).get_by_role("textbox", name="Reason").fill("Not here." if button == "Deny" else "")
        asked.nth(place).get_by_role("button", name=button).click()
        expect(asked.nth(place).get_by_role("button", name=button)).to_have_count(0)
    expect_state(held_page, "completed")
    assert (times(ran), times(Path(f"{ran}.other"))) == (1, 0)
    expect(answers(held_page).last).to_contain_text("Not here.")


def test_a_clients_run_that_waits_is_listed_with_its_name_and_goes_on(tmp_path: Path, contexts: Contexts) -> None:
    settings = {"wait_for_approval_seconds": "60"}
    with ended_agents(tmp_path), running_gateway(tmp_path, settings=settings) as gateway:
        page = opened(contexts(), gateway.url)
        prompt, ran = counter(gateway.workspace)
        with ThreadPoolExecutor(1) as pool, http_client(gateway) as client:
            named = {"user-agent": "opencode/1.2.3"}
            reply = pool.submit(
                lambda: client.post("/v1/chat/completions", json=question(prompt), headers=named, timeout=TIMEOUT)
            )
            eventually(lambda: http_waits(gateway))
            page.reload()
            listed = page.locator("#conversations a").first
            expect(listed).to_contain_text("Waiting for you · OpenCode")
            listed.click()
            expect_state(page, "waiting")
            of_type(page, "clarification").get_by_role("button", name="Allow once").click()
            assert reply.result().json()["choices"][0]["finish_reason"] == "stop"
        expect_state(page, "completed")
        expect(answers(page)).to_have_count(1)
        assert times(ran) == 1


def http_waits(gateway: RunningGateway) -> bool:
    with http_client(gateway) as client:
        return any(one.get("isWaiting") for one in client.get("/v1/conversations").json()["conversations"])
