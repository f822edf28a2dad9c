"""Failures of the agent, as the real Codex and Claude Code meet them: what is shown, and how many agents have run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from tests.clients.faulty_proxy import FaultyProxy, faulty_proxy
from tests.clients.programs import Project, ask_launched
from tests.failure_table import MISSING, ROWS, SET, Program, Row, attempts
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import chat, growing, http_client, invocations, standin, unique

PATHS: dict[Program, str] = {"codex": "/v1/responses", "claude": "/v1/messages"}
ARGUMENTS: dict[Program, list[str]] = {"codex": ["exec", "--skip-git-repo-check"], "claude": ["-p"]}


class Asked(Struct, frozen=True):
    shown: str
    requests: int
    agents: int


def ask(
    program: Program,
    gateway: RunningGateway,
    project: Project,
    scenario: str,
    *,
    fails: bool = True,
    came: Callable[[FaultyProxy], None] = lambda proxy: None,
) -> Asked:
    """One question to a program that has its own tools. `came` is called with each request."""
    mark = unique()
    with faulty_proxy(gateway.url, PATHS[program]) as proxy:
        proxy.came = came
        prompt = f"{mark}\n{standin(scenario)}"
        shown = ask_launched(project, program, proxy.url, *ARGUMENTS[program], prompt, fails=fails)
        return Asked(shown, proxy.requests, len(invocations(gateway, mark)))


def check(program: Program, gateway: RunningGateway, project: Project, row: Row) -> None:
    found, expected = ask(program, gateway, project, row.prompt), attempts(program, row)
    assert (row.advice in found.shown) == expected.shows_message, found.shown
    assert found.agents == expected.agents
    if row.when != "either":
        assert found.requests == expected.requests


@pytest.mark.parametrize("row", ROWS, ids=[row.prompt for row in ROWS])
def test_codex_asks_once_and_shows_the_message(row: Row, gateway: RunningGateway, project: Project) -> None:
    check("codex", gateway, project, row)


# Claude Code takes longer to start: one row for all that look the same to it.
_DISTINCT = list({row.effect: row for row in ROWS}.values())


@pytest.mark.parametrize("row", _DISTINCT, ids=[row.prompt for row in _DISTINCT])
def test_claude_code_runs_one_agent(row: Row, gateway: RunningGateway, project: Project) -> None:
    check("claude", gateway, project, row)


# The other settings bring about nothing where a client has its own tools, or nothing that no row has.
LIMITS = ("nothing is ever said", "silence from the start", "silence in the middle", "a run that is too long")


@pytest.mark.parametrize(
    ("program", "name"),
    [
        *(("codex", name) for name in (*LIMITS, "too much output")),
        *(("claude", name) for name in ("nothing is ever said", "silence in the middle", "too much output")),
    ],
)
def test_a_limit_is_reached_once(program: Program, name: str, tmp_path: Path, project: Project) -> None:
    one = SET[name]
    with running_gateway(tmp_path / "gateway", settings=one.settings, knobs=one.knobs) as gateway:
        check(program, gateway, project, one.row)


@pytest.mark.parametrize("program", PATHS)
def test_an_agent_that_is_missing(program: Program, tmp_path: Path, project: Project) -> None:
    with running_gateway(tmp_path / "gateway") as gateway:
        for name in ("cursor-agent", "agent"):
            (gateway.home / "bin" / name).unlink()
        check(program, gateway, project, MISSING)


@pytest.mark.parametrize("program", PATHS)
def test_a_client_that_finds_no_place_tries_again_until_there_is_one(
    program: Program, tmp_path: Path, project: Project
) -> None:
    file = tmp_path / "go"

    def came(proxy: FaultyProxy) -> None:
        if proxy.requests == 2:  # the first one was refused
            file.touch()

    with (
        running_gateway(tmp_path / "gateway", settings={"max_runs": "1"}) as gateway,
        http_client(gateway) as http,
        growing(http, "documents", standin(f"wait-for file={file}")) as reply,
    ):
        reply.until(b"file.")
        found = ask(program, gateway, project, "text", fails=False, came=came)
        assert found.requests > 1
        assert found.agents == 1


@pytest.mark.parametrize("program", ["codex", "claude"])
def test_a_used_up_budget_is_shown_at_once(program: Program, tmp_path: Path, project: Project) -> None:
    """Although the reply says when to ask again: nobody waits for that."""
    budgets = {"budgets": '{"*": {"tokens_per_day": 1}}', "spare_agents": "0"}
    with running_gateway(tmp_path / "gateway", settings=budgets) as gateway:
        with http_client(gateway) as http:
            chat(http, standin("text"))
        found = ask(program, gateway, project, "text")
    assert "may use 1 tokens a day" in found.shown
    assert (found.requests, found.agents) == (1, 0)
