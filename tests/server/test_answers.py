"""The text of answers: as the run said them, or checked to be the JSON that was asked for, with one repair."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import Receive

from cursor_gateway.dialects.base import SSE, RunView, Start
from cursor_gateway.dialects.chat.dialect import ChatReply
from cursor_gateway.dialects.deltas import Answer, AnswerFold
from cursor_gateway.errors import AgentOverloaded, Failure
from cursor_gateway.model.agent_events import AgentEvent, RunFinished, TokenCounts
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.prompting.structured import Format, JsonObject, JsonSchema
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.local_run_service import LocalRunService
from cursor_gateway.runs.registry import Runs
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_request import Defaults, RunRequest
from cursor_gateway.runs.shares import Shares
from cursor_gateway.runs.workspaces import Workspaces
from cursor_gateway.server.answers import Answering, CheckedAnswer, LateStream, TextAnswer
from cursor_gateway.server.streaming import Reading
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.store.sqlite.store import SqliteStore
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
from tests.store.blocking import blocking

COUNTED = RunFinished(usage=TokenCounts(prompt=100, completion=20, cached=70))
SCHEMA = JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
HEADERS = {"x-chat-id": "chat_1"}


def answers(text: str) -> list[Step]:
    return [[STARTED], say(text), [COUNTED]]


_OPEN: list[SqliteStore] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _OPEN:
        blocking(_OPEN.pop()).close()


class Place:
    """A service that follows scripts, one for each turn."""

    def __init__(self, tmp_path: Path, *scripts: list[Step]) -> None:
        self.source = ScriptedSource(*scripts)
        self.runs = Runs(self.source, ENDLESS, Shares(max_runs=1))
        self.store = SqliteStore(tmp_path)
        _OPEN.append(self.store)
        self.service = LocalRunService(
            self.source,
            self.runs,
            self.store,
            Conversations(self.store, tmp_path / "conversations"),
            Workspaces(tmp_path, []),
            Defaults(model="auto"),
            "instance",
            lambda: 0,
        )
        self.order = RunRequest(owner="me", messages=[UserMessage("Say it.")])

    async def whole(self, cutter: Cutter | None = None) -> TextAnswer:
        return TextAnswer(await self.service.start(self.order), AnswerFold("1", cutter=cutter))

    async def checked(self, format: Format = SCHEMA, cutter: Cutter | None = None) -> CheckedAnswer:
        return CheckedAnswer(await self.whole(cutter), self.order, format, self.service)


async def completed(answer: Answering, receive: Receive | None = None) -> Answer:
    result = await answer.answer(receive or Client().receive)
    assert isinstance(result, Answer), result
    return result


async def failed(answer: Answering, receive: Receive | None = None) -> Failure:
    result = await answer.answer(receive or Client().receive)
    assert isinstance(result, Failure), result
    return result


def run_of(answer: TextAnswer) -> Run:
    assert isinstance(answer.run, Run)
    return answer.run


# --- as it is -------------------------------------------------------------------------------------------


def test_a_run_becomes_a_completion(tmp_path: Path) -> None:
    async def live() -> None:
        completion = await completed(await Place(tmp_path, answers("Hello")).whole())
        assert (completion.text, completion.end.reason) == ("Hello", "stop")
        assert completion.end.usage.total_tokens == 120

    asyncio.run(live())


def test_a_failed_run_becomes_its_failure(tmp_path: Path) -> None:
    async def live() -> None:
        result = await failed(await Place(tmp_path, [[STARTED], say("Half"), AgentOverloaded("Full.")]).whole())
        assert result.code == "agent_overloaded"

    asyncio.run(live())


def test_an_answer_that_is_long_enough_stops_the_run(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, [[STARTED], say("one two three four"), forever()])
        answer = await place.whole(cutter=Cutter(("three",), None))
        completion = await completed(answer)
        assert (completion.text, completion.end.reason) == ("one two ", "stop")
        assert run_of(answer).is_ending
        await run_of(answer).gone()

    asyncio.run(live())


def test_a_client_that_leaves_gets_no_answer_and_its_run_is_stopped(tmp_path: Path) -> None:
    async def live() -> None:
        client = Client()
        answer = await Place(tmp_path, [[STARTED], say("Half"), forever()]).whole()
        asking = asyncio.ensure_future(failed(answer, client.receive))
        await true(lambda: run_of(answer).log.events)
        client.leaves.set()
        assert (await asking).code == "cancelled"
        await run_of(answer).gone()

    asyncio.run(live())


# --- checked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"a": 1}', 'Here it is:\n```json\n{"a": 1}\n```\nDone.', ' {"a": 1}\n'])
def test_json_that_fits_is_the_whole_content(tmp_path: Path, text: str) -> None:
    async def live() -> None:
        place = Place(tmp_path, answers(text))
        completion = await completed(await place.checked())
        assert json.loads(completion.text) == {"a": 1}
        assert len(place.source.turns) == 1

    asyncio.run(live())


@pytest.mark.parametrize("text", ["No.", '{"a": "one"}', "[1]", ""])
def test_what_does_not_fit_is_asked_for_again_in_the_same_session(tmp_path: Path, text: str) -> None:
    async def live() -> None:
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

    asyncio.run(live())


def test_the_repair_waits_until_the_first_agent_has_gone(tmp_path: Path) -> None:
    async def live() -> None:
        goes = asyncio.Event()
        place = Place(tmp_path, [*answers("No."), Until(goes)], answers('{"a": 1}'))
        asking = asyncio.ensure_future(completed(await place.checked()))
        await turns_of_the_loop(20)
        assert len(place.source.turns) == 1
        goes.set()
        await asking
        assert len(place.source.turns) == 2

    asyncio.run(live())


def test_there_is_one_repair(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, answers("No."), answers("Still no."))
        result = await failed(await place.checked())
        assert (result.code, result.param, len(place.source.turns)) == ("answer_unfit", "response_format", 2)

    asyncio.run(live())


def test_any_object_may_be_asked_for(tmp_path: Path) -> None:
    async def live() -> None:
        assert (await completed(await Place(tmp_path, answers("{}")).checked(JsonObject()))).text == "{}"

    asyncio.run(live())


@pytest.mark.parametrize("script", [[AgentOverloaded("Full.")], [[STARTED], say("{"), AgentOverloaded("Full.")]])
def test_a_run_that_fails_is_not_repaired(tmp_path: Path, script: list[Step]) -> None:
    async def live() -> None:
        place = Place(tmp_path, script)
        assert (await failed(await place.checked())).code == "agent_overloaded"
        assert len(place.source.turns) == 1

    asyncio.run(live())


def test_a_repair_that_fails_says_why(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, answers("No."), [[STARTED], AgentOverloaded("Full.")])
        assert (await failed(await place.checked())).code == "agent_overloaded"

    asyncio.run(live())


def test_a_repair_that_cannot_start_says_why(tmp_path: Path) -> None:
    async def live() -> None:
        goes = asyncio.Event()
        place = Place(tmp_path, [[STARTED], say("No."), Until(goes), [COUNTED]])
        asking = asyncio.ensure_future(failed(await place.checked()))
        await turns_of_the_loop()
        closing = asyncio.ensure_future(place.runs.close(1e6))
        await turns_of_the_loop()
        goes.set()
        assert (await asking).code == "shutting_down"
        await closing

    asyncio.run(live())


def test_what_was_cut_off_is_not_checked(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, [[STARTED], say('{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9'), forever()])
        completion = await completed(await place.checked(cutter=Cutter((), 3)))
        assert completion.end.reason == "length"
        assert len(place.source.turns) == 1

    asyncio.run(live())


def test_who_leaves_during_the_repair_stops_it(tmp_path: Path) -> None:
    async def live() -> None:
        client = Client()
        place = Place(tmp_path, answers("No."), [[STARTED], say("Half"), forever()])
        asking = asyncio.ensure_future(failed(await place.checked(), client.receive))
        await true(lambda: len(place.source.turns) == 2)
        client.leaves.set()
        assert (await asking).code == "cancelled"
        await true(lambda: place.source.ended == 2)

    asyncio.run(live())


# --- as a stream all the same ---------------------------------------------------------------------------


RUN = RunView(RunInfo(id="chat_1", created="2026-02-23T10:30:00Z"), 1, "")


def late(answer: Answering, asked: Reading) -> LateStream:
    reply = ChatReply(agent_tools="reasoning", include_usage=True)
    return LateStream(answer, lambda whole: reply.frames(RUN, Start(), whole), SSE, lambda: HEADERS, asked)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_that_is_there_in_time_is_one_write(tmp_path: Path, loop: Loop) -> None:
    async def live() -> None:
        asked = reading()
        client = await Client().answered(late(await Place(tmp_path, answers('{"a": 1}')).checked(), asked))
        assert (client.status, client.headers["x-chat-id"], len(client.pieces)) == (200, "chat_1", 1)
        assert client.headers["content-type"].startswith("text/event-stream")
        read_stream(client.body, include_usage=True)
        assert b'"prompt_tokens":100' in client.body

    loop(live())


def test_a_failure_in_time_has_its_status(tmp_path: Path) -> None:
    async def live() -> None:
        asked = reading()
        client = await Client().answered(late(await Place(tmp_path, [AgentOverloaded("Full.")]).checked(), asked))
        assert (client.status, client.headers["x-chat-id"]) == (429, "chat_1")
        assert json.loads(client.body)["error"]["code"] == "agent_overloaded"

    asyncio.run(live())


def test_a_failure_is_part_of_the_stream_for_clients_that_want_it_there(tmp_path: Path) -> None:
    async def live() -> None:
        answer = await Place(tmp_path, [AgentOverloaded("Full.")]).checked()
        stream = LateStream(answer, lambda whole: b"failed", SSE, lambda: HEADERS, reading(), streams_failures=True)
        client = await Client().answered(stream)
        assert (client.status, client.body) == (200, b"failed")

    asyncio.run(live())


@pytest.mark.parametrize("end", [[COUNTED], AgentOverloaded("Full.")])
def test_signs_of_life_come_before_a_late_answer(tmp_path: Path, end: list[AgentEvent] | Exception) -> None:
    async def live() -> None:
        goes, client, asked = asyncio.Event(), Client(), reading(hold=0.001, keep_alive=0.001)
        answer = await Place(tmp_path, [[STARTED], say('{"a": 1}'), Until(goes), end]).checked()
        asking = client.ask(late(answer, asked))
        await client.has(4)
        assert set(client.pieces) == {b": keep-alive\n\n"}
        goes.set()
        await asking
        assert client.status == 200
        assert (b"agent_no_capacity" in client.pieces[-1]) == isinstance(end, Exception)
        assert client.body.endswith(b"data: [DONE]\n\n")

    asyncio.run(live())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", ["leaves", "breaks", "is cancelled"])
def test_a_late_stream_whose_client_has_gone_stops_its_run(tmp_path: Path, loop: Loop, how: str) -> None:
    async def live() -> None:
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

    loop(live())


class Broken:
    async def answer(self, receive: Receive) -> Answer | Failure:
        raise KeyError("a mistake of ours")


def test_a_mistake_is_not_swallowed() -> None:
    async def live() -> None:
        client = Client()
        with pytest.raises(KeyError):
            await client.ask(late(Broken(), reading()))
        assert client.sent == []

    asyncio.run(live())
