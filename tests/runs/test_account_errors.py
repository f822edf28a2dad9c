"""Errors about the account: remembered for a time, for whom they are about, until something has changed."""

import asyncio
from pathlib import Path

import pytest

from cursor_gateway.errors import (
    AgentCrashed,
    AgentError,
    AgentMissing,
    AgentOverloaded,
    AgentQuotaExhausted,
    AgentUnauthenticated,
    ModelUnavailable,
)
from cursor_gateway.fair_places import Shares
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.repeats import AccountErrors, forget_account_errors
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Defaults, RunRequest
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.router import routed
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.roots import Workspaces
from tests.runs.scripted import ENDLESS, FINISHED, STARTED, ScriptedSource, Step, Watcher, say
from tests.store.blocking import closed_later

ANSWERS: list[Step] = [[STARTED], say("All"), [FINISHED]]
LIMIT = AgentQuotaExhausted("It is used up.", details="resets on 10/2/2026")
LOGIN = AgentUnauthenticated("Nobody is logged in.")


class Place:
    """A service whose source fails as it is told to, and whose clock stands still."""

    def __init__(self, tmp_path: Path, *scripts: list[Step], seconds: float = 60) -> None:
        (tmp_path / "work").mkdir()
        self.now, self.folder = 1000.0, tmp_path
        self.source = ScriptedSource(*scripts)
        self.source.known = ["auto", "opus"]
        self.watcher = Watcher()
        self.store = closed_later(SqliteStore(tmp_path))
        runs = Runs(self.source, ENDLESS, Shares(max_runs=4), [self.watcher])
        self.service = LocalRunService(
            RunParts(
                routed(self.source),
                runs,
                self.store,
                Conversations(self.store, tmp_path / "conversations", latest=runs.latest),
                Workspaces(tmp_path / "work", []),
                Defaults(model="auto"),
                "instance",
                lambda: 0,
                account_errors=AccountErrors(routed(self.source), seconds, lambda: self.now, tmp_path),
            )
        )

    async def ask(self, owner: str = "me", model: str | None = None, *, clients_retry: bool = True) -> str:
        """How the run ended, once its agent is gone."""
        order = RunRequest(
            owner=owner, messages=[UserMessage("Hi.")], model=model, request_id="req_1", clients_retry=clients_retry
        )
        run = await self.service.start(order)
        assert isinstance(run, Run)
        await run.gone()
        assert run.done is not None
        return run.done.failure.code if run.done.failure is not None else "completed"

    @property
    def agents(self) -> int:
        return len(self.source.turns)


@pytest.mark.parametrize("error", [LIMIT, LOGIN])
async def test_the_same_error_is_returned_again_without_an_agent(tmp_path: Path, error: AgentError) -> None:
    place = Place(tmp_path, [error])
    assert await place.ask() == error.code
    conversations = list((tmp_path / "conversations").iterdir())
    place.now += 12
    for _ in range(3):
        with pytest.raises(type(error)) as again:
            await place.ask()
        result = again.value.failure()
        assert result.message.startswith(f"{error} (The agent said so 12 s ago. It is asked again after 60 s, ")
        assert (result.details, result.retryable, result.retry_after) == (error.details, False, None)
    assert place.agents == 1
    assert list((tmp_path / "conversations").iterdir()) == conversations
    assert place.watcher.seen.count(f"repeated {error.code} me req_1") == 3


async def test_a_person_who_asks_again_gets_an_agent(tmp_path: Path) -> None:
    place = Place(tmp_path, [LIMIT], ANSWERS)
    await place.ask()
    assert await place.ask(clients_retry=False) == "completed"


async def test_after_a_time_the_agent_is_asked_again(tmp_path: Path) -> None:
    place = Place(tmp_path, [LIMIT], ANSWERS)
    await place.ask()
    place.now += 59.9
    with pytest.raises(AgentQuotaExhausted):
        await place.ask()
    place.now += 0.1
    assert await place.ask() == "completed"
    assert place.agents == 2


async def test_after_another_login_the_agent_is_asked_again(tmp_path: Path) -> None:
    place = Place(tmp_path, [LOGIN], ANSWERS)
    await place.ask()
    place.source.login = "somebody else"
    assert await place.ask() == "completed"


async def test_an_error_is_about_the_login_with_which_its_run_began(tmp_path: Path) -> None:
    place = Place(tmp_path, [LOGIN], ANSWERS)
    asking = asyncio.ensure_future(place.ask())
    while not place.agents:
        await asyncio.sleep(0)
    place.source.login = "somebody else"
    await asking
    assert await place.ask() == "completed"


async def test_another_process_can_have_them_forgotten(tmp_path: Path) -> None:
    place = Place(tmp_path, [LIMIT])
    await place.ask()
    for asked in (2, 3):
        forget_account_errors(tmp_path)
        await place.ask()
        assert place.agents == asked
        with pytest.raises(AgentQuotaExhausted):
            await place.ask()
    forget_account_errors(tmp_path / "not made yet")
    assert not (tmp_path / "not made yet").exists()


@pytest.mark.parametrize("error", [AgentOverloaded("full"), AgentCrashed(), ModelUnavailable("no"), AgentMissing("no")])
async def test_other_errors_are_not_remembered(tmp_path: Path, error: AgentError) -> None:
    place = Place(tmp_path, [error])
    assert [await place.ask(), await place.ask()] == [error.code] * 2
    assert place.agents == 2


async def test_nothing_is_remembered_where_the_operator_does_not_want_it(tmp_path: Path) -> None:
    place = Place(tmp_path, [LIMIT], seconds=0)
    assert [await place.ask(), await place.ask()] == [LIMIT.code] * 2


async def test_a_usage_limit_is_one_models_and_a_missing_login_is_everybodys(tmp_path: Path) -> None:
    """Cursor offers another model at the limit, so a request for that one has to reach the agent."""
    place = Place(tmp_path, [LIMIT], ANSWERS, [LOGIN])
    assert await place.ask(model="opus") == LIMIT.code
    assert await place.ask(model="auto") == "completed"
    with pytest.raises(AgentQuotaExhausted):  # the other model's success says nothing about this one
        await place.ask(model="opus")
    assert await place.ask(model="auto") == LOGIN.code
    with pytest.raises(AgentUnauthenticated):
        await place.ask(model="opus")


async def test_what_one_caller_heard_does_not_shut_out_another(tmp_path: Path) -> None:
    place = Place(tmp_path, [LIMIT], ANSWERS)
    await place.ask("me")
    assert await place.ask("you") == "completed"
    assert await place.ask("me") == "completed"  # your success shows that the limit is gone


def test_so_many_are_remembered_and_no_more(tmp_path: Path) -> None:
    errors = AccountErrors(routed(ScriptedSource(ANSWERS)), 60, lambda: 0.0, tmp_path)
    asked = [errors.asked(f"owner {number}", None, "auto") for number in range(1001)]
    for one in asked:
        errors.record(one, LIMIT.failure())
    assert errors.known(asked[0]) is None
    assert errors.known(asked[1]) is not None
    assert errors.known(asked[1000]) is not None
