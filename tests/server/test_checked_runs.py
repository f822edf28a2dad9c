"""Answers as the run wrote them, or checked to be the JSON that was asked for, with one repair."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from starlette.types import Receive

from cursor_gateway.dialects.base import ReplyStart
from cursor_gateway.dialects.chat.dialect import ChatReply
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.deltas import WholeAnswer
from cursor_gateway.dialects.errors import OWN_ERRORS
from cursor_gateway.errors import AgentOverloaded, Failure, NotFound
from cursor_gateway.fair_places import Shares
from cursor_gateway.model.agent_events import AgentEvent, RunFinished, TokenCounts
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.prompting.structured import JsonObject, JsonSchema
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Defaults, RunRequest
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.server.replies import fold_run, reply_stream
from cursor_gateway.server.streaming import CheckedRun, EventStream, Reading, view_of
from cursor_gateway.sources.router import routed
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.roots import Workspaces
from tests.openai_shapes import read_stream
from tests.runs.scripted import (
    ENDLESS,
    LOOPS,
    STARTED,
    Loop,
    ScriptedSource,
    Step,
    Until,
    forever,
    say,
    true,
    turns_of_the_loop,
)
from tests.server.asgi import Client, reading
from tests.store.blocking import close_all, closed_later

COUNTED = RunFinished(usage=TokenCounts(prompt=100, completion=20, cached=70))
SCHEMA = JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
CHECK = Check(SCHEMA)
REPLY = ChatReply(agent_tools="reasoning", include_usage=True, has_ids=False)


def answers(text: str) -> list[Step]:
    return [[STARTED], say(text), [COUNTED]]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


class Place:
    """A service that follows scripts, one for each turn."""

    def __init__(self, tmp_path: Path, *scripts: list[Step]) -> None:
        self.source = ScriptedSource(*scripts)
        self.runs = Runs(self.source, ENDLESS, Shares(max_runs=1))
        self.store = closed_later(SqliteStore(tmp_path))
        self.service = LocalRunService(
            RunParts(
                routed(self.source),
                self.runs,
                self.store,
                Conversations(self.store, tmp_path / "conversations", latest=self.runs.latest),
                Workspaces(tmp_path, []),
                Defaults(model="auto"),
                "instance",
                lambda: 0,
            )
        )
        self.order = RunRequest(owner="me", messages=[UserMessage("Say it.")])

    async def whole(self) -> Run:
        run = await self.service.start(self.order)
        assert isinstance(run, Run)
        return run

    async def checked(self, check: Check = CHECK) -> CheckedRun:
        return CheckedRun(await self.whole(), self.order, check, self.service)


async def answer_of(
    run: RunHandle, receive: Receive | None = None, reply: ChatReply = REPLY
) -> tuple[WholeAnswer | None, Failure | None]:
    """None if the client has left, and why the run failed."""
    whole = reply.whole(view_of(run), ReplyStart())
    has_begun = await fold_run(run, whole, {}, receive or Client().receive, 0)
    return (None if has_begun is None else whole.answer()), whole.failure


async def completed(run: RunHandle, reply: ChatReply = REPLY) -> WholeAnswer:
    answer, failure = await answer_of(run, reply=reply)
    assert answer is not None
    assert failure is None, failure
    return answer


async def failed(run: RunHandle) -> Failure:
    _, failure = await answer_of(run)
    assert failure is not None
    return failure


# --- as it is -------------------------------------------------------------------------------------------


async def test_an_answer_that_is_long_enough_stops_the_run(tmp_path: Path) -> None:
    place = Place(tmp_path, [[STARTED], say("one two three four"), forever()])
    run = await place.whole()
    completion = await completed(run, replace(REPLY, stop=("three",)))
    assert (completion.text, completion.end.reason) == ("one two ", "stop")
    assert run.is_ending
    await run.gone()


async def test_a_client_that_leaves_gets_no_answer_and_its_run_is_stopped(tmp_path: Path) -> None:
    client = Client()
    run = await Place(tmp_path, [[STARTED], say("Half"), forever()]).whole()
    asking = asyncio.ensure_future(answer_of(run, client.receive))
    await true(lambda: run.log.events)
    client.leaves.set()
    assert await asking == (None, None)
    await run.gone()


# --- checked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"a": 1}', 'Here it is:\n```json\n{"a": 1}\n```\nDone.', ' {"a": 1}\n'])
async def test_json_that_fits_is_the_whole_content(tmp_path: Path, text: str) -> None:
    place = Place(tmp_path, answers(text))
    completion = await completed(await place.checked())
    assert json.loads(completion.text) == {"a": 1}
    assert len(place.source.turns) == 1


@pytest.mark.parametrize("text", ["No.", '{"a": "one"}', "[1]", ""])
async def test_what_does_not_fit_is_asked_for_again_in_the_same_session(tmp_path: Path, text: str) -> None:
    place = Place(tmp_path, answers(text), answers('{"a": 1}'))
    completion = await completed(await place.checked())
    assert json.loads(completion.text) == {"a": 1}
    first, second = place.source.turns
    assert (first.session_id, second.session_id) == (None, "session-1")
    assert second.folder == first.folder
    assert second.prompt != first.prompt
    usage = completion.end.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    both = completion.end.total
    assert both is not None
    assert (both.prompt_tokens, both.completion_tokens, both.total_tokens) == (200, 40, 240)
    assert both.cached_tokens == 140


async def test_the_repair_waits_until_the_first_agent_has_gone(tmp_path: Path) -> None:
    goes = asyncio.Event()
    place = Place(tmp_path, [*answers("No."), Until(goes)], answers('{"a": 1}'))
    asking = asyncio.ensure_future(completed(await place.checked()))
    await turns_of_the_loop(20)
    assert len(place.source.turns) == 1
    goes.set()
    await asking
    assert len(place.source.turns) == 2


async def test_there_is_one_repair(tmp_path: Path) -> None:
    place = Place(tmp_path, answers("No."), answers("Still no."))
    result = await failed(await place.checked())
    assert (result.code, result.param, len(place.source.turns)) == ("answer_unfit", "response_format", 2)


async def test_any_object_may_be_asked_for(tmp_path: Path) -> None:
    assert (await completed(await Place(tmp_path, answers("{}")).checked(Check(JsonObject())))).text == "{}"


@pytest.mark.parametrize("script", [[AgentOverloaded("Full.")], [[STARTED], say("{"), AgentOverloaded("Full.")]])
async def test_a_run_that_fails_is_not_repaired(tmp_path: Path, script: list[Step]) -> None:
    place = Place(tmp_path, script)
    assert (await failed(await place.checked())).code == "agent_overloaded"
    assert len(place.source.turns) == 1


async def test_a_repair_that_fails_says_why(tmp_path: Path) -> None:
    place = Place(tmp_path, answers("No."), [[STARTED], AgentOverloaded("Full.")])
    assert (await failed(await place.checked())).code == "agent_overloaded"


async def test_a_repair_that_cannot_start_says_why(tmp_path: Path) -> None:
    goes = asyncio.Event()
    place = Place(tmp_path, [[STARTED], say("No."), Until(goes), [COUNTED]])
    asking = asyncio.ensure_future(failed(await place.checked()))
    await turns_of_the_loop()
    closing = asyncio.ensure_future(place.runs.close(1e6))
    await turns_of_the_loop()
    goes.set()
    assert (await asking).code == "shutting_down"
    await closing


async def test_what_was_cut_off_is_not_checked(tmp_path: Path) -> None:
    place = Place(tmp_path, [[STARTED], say('{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9'), forever()])
    limited = replace(REPLY, max_tokens=3)
    completion = await completed(await place.checked(Check(SCHEMA, max_tokens=3)), limited)
    assert completion.end.reason == "length"
    assert len(place.source.turns) == 1
    await true(lambda: place.source.ended == 1)


async def test_who_leaves_during_the_repair_stops_it(tmp_path: Path) -> None:
    client = Client()
    place = Place(tmp_path, answers("No."), [[STARTED], say("Half"), forever()])
    asking = asyncio.ensure_future(answer_of(await place.checked(), client.receive))
    await true(lambda: len(place.source.turns) == 2)
    client.leaves.set()
    assert await asking == (None, None)
    await true(lambda: place.source.ended == 2)


async def test_a_run_whose_events_are_gone_is_not_found(tmp_path: Path) -> None:
    place, client = Place(tmp_path, answers("{}")), Client()
    run = await place.whole()
    run.log.is_deleted = True
    with pytest.raises(NotFound):
        await client.answered(late(CheckedRun(run, place.order, CHECK, place.service), reading()))


# --- as a stream all the same ---------------------------------------------------------------------------


class FailureStreamingReply(ChatReply, frozen=True, kw_only=True):
    streams_failures = True


def late(run: RunHandle, asked: Reading, reply: ChatReply = REPLY) -> EventStream:
    return reply_stream(run, reply, ReplyStart(), asked, OWN_ERRORS)


@pytest.mark.parametrize("loop", LOOPS)
async def test_an_answer_that_is_there_in_time_is_one_write(tmp_path: Path, loop: Loop) -> None:
    asked = reading()
    client = await Client().answered(late(await Place(tmp_path, answers('{"a": 1}')).checked(), asked))
    assert (client.status, client.headers["x-chat-id"][:5], len(client.pieces)) == (200, "chat_", 1)
    assert client.headers["content-type"].startswith("text/event-stream")
    read_stream(client.body, include_usage=True)
    assert b'"prompt_tokens":100' in client.body


async def test_a_failure_in_time_has_its_status(tmp_path: Path) -> None:
    asked = reading()
    client = await Client().answered(late(await Place(tmp_path, [AgentOverloaded("Full.")]).checked(), asked))
    assert (client.status, client.headers["x-chat-id"][:5]) == (429, "chat_")
    assert json.loads(client.body)["error"]["code"] == "agent_overloaded"


async def test_a_failure_is_part_of_the_stream_for_clients_that_want_it_there(tmp_path: Path) -> None:
    run = await Place(tmp_path, [AgentOverloaded("Full.")]).checked()
    client = await Client().answered(late(run, reading(), FailureStreamingReply(agent_tools="none")))
    assert client.status == 200
    assert b"agent_no_capacity" in client.body


@pytest.mark.parametrize("end", [[COUNTED], AgentOverloaded("Full.")])
async def test_signs_of_life_come_before_a_late_answer(tmp_path: Path, end: list[AgentEvent] | Exception) -> None:
    goes, client, asked = asyncio.Event(), Client(), reading(hold=0.001, keep_alive=0.001)
    answer = await Place(tmp_path, [[STARTED], say('{"a": 1}'), Until(goes), end]).checked()
    asking = client.ask(late(answer, asked))
    await client.has(4)
    assert set(client.pieces) <= {b"", b": keep-alive\n\n"}
    goes.set()
    await asking
    assert client.status == 200
    assert (b"agent_no_capacity" in client.pieces[-1]) == isinstance(end, Exception)
    assert client.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", ["leaves", "breaks", "is cancelled"])
async def test_a_late_stream_whose_client_has_gone_stops_its_run(tmp_path: Path, loop: Loop, how: str) -> None:
    client, asked = Client(), reading(hold=0.001, keep_alive=0.001)
    place = Place(tmp_path, [[STARTED], say("Half"), forever()])
    asking = client.ask(late(await place.checked(), asked))
    await client.has(3)
    if how == "leaves":
        client.leaves.set()
    elif how == "breaks":
        client.breaks = OSError("broken pipe")
    else:
        asking.cancel()
    await asyncio.wait([asking])
    assert how == "is cancelled" or (asking.exception() is not None) == (how == "breaks")
    await true(lambda: place.source.ended == 1)


async def test_a_mistake_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, client = Place(tmp_path, answers("{}")), Client()
    run = await place.checked(Check(JsonObject()))

    async def broken(*_: object) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(place.service, "answered", broken)
    with pytest.raises(KeyError):
        await client.ask(late(run, reading()))
    assert client.sent == []
