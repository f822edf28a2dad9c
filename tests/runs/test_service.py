"""The service: an order becomes a run in its conversation's folder, or is refused and leaves nothing behind."""

import asyncio
import errno
import gc
import os
import threading
import weakref
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.fair_places import Shares
from cursor_gateway.model.agent_events import RunFailed
from cursor_gateway.model.caller_tools import Offer, Tool
from cursor_gateway.model.messages import AssistantMessage, Image, Message, UserMessage
from cursor_gateway.model.requests import WhenBusy
from cursor_gateway.prompting.prompt import debug_preamble
from cursor_gateway.runs import starter
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.handle import RunHandle, StoredRun, response_of
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Defaults, RunRequest, continuation_of
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.router import routed
from cursor_gateway.store.base import EventPage, Store
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.roots import Workspaces
from tests.runs.scripted import (
    ENDLESS,
    FINISHED,
    STARTED,
    ScriptedSource,
    Step,
    Until,
    folded,
    forever,
    say,
    turns_of_the_loop,
)
from tests.runs.suspending import suspending
from tests.store.blocking import closed_later
from tests.store.making import ME, new_run

ANSWERS: list[Step] = [[STARTED], say("All"), [FINISHED]]


class Place:
    """A service below a folder, and how many conversations have one there."""

    @staticmethod
    def wrap(store: Store) -> Store:
        return store

    def __init__(self, tmp_path: Path, source: ScriptedSource, max_runs: int = 4, **defaults: Any) -> None:
        (tmp_path / "work" / "project").mkdir(parents=True)
        self.source = source
        self.work, self.folder = tmp_path / "work", tmp_path / "conversations"
        self.store = closed_later(SqliteStore(tmp_path))
        store = type(self).wrap(self.store)
        runs = Runs(source, ENDLESS, Shares(max_runs=max_runs))
        self.service = LocalRunService(
            RunParts(
                routed(source),
                runs,
                store,
                Conversations(store, self.folder, latest=runs.latest),
                Workspaces(self.work, []),
                Defaults(**{"model": "auto", **defaults}),
                "instance",
                lambda: 0,
            )
        )

    async def start(self, *messages: Message, **order: Any) -> Run:
        run = await self.ordered(*messages, **order)
        assert isinstance(run, Run)
        return run

    async def ordered(self, *messages: Message, **order: Any) -> RunHandle:
        asked = {"owner": "me", "messages": messages or [UserMessage("Say it.")], **order}
        return await self.service.start(RunRequest(**asked))

    @property
    def folders(self) -> int:
        return len(list(self.folder.iterdir())) if self.folder.exists() else 0


@pytest.fixture(params=[lambda store: store, suspending], ids=["local", "suspending"], autouse=True)
def _store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds must hold as well if the store is far away."""
    monkeypatch.setattr(Place, "wrap", staticmethod(request.param))


async def test_an_order_becomes_a_turn(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    run = await place.start(request_id="req_1", workspace="project", include=frozenset({"raw"}), fences="inline")
    turn = run.turn
    assert (turn.prompt, turn.model, turn.mode, turn.session_id) == ("Say it.", "auto", "agent", None)
    assert turn.workspace == str(place.work / "project")
    assert Path(turn.folder).parent == place.folder
    assert run.id == turn.run_id
    assert run.id.startswith("chat_")
    assert (run.info.fences, run.info.include, run.info.mode) == ("inline", {"raw"}, "agent")
    assert run.info.conversation_id == Path(turn.folder).name
    assert (run.owner, run.plan.request_id) == ("me", "req_1")
    assert datetime.fromisoformat(run.info.created).tzinfo is not None
    await run.gone()
    assert place.source.turns == [turn]


async def test_the_events_of_a_run_that_has_ended_are_freed_without_garbage_collection(tmp_path: Path) -> None:
    """They are megabytes in a long run: a reference cycle keeps them until Python's next full collection."""
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    gc.disable()
    try:
        run = await place.start()
        await run.gone()
        held = weakref.ref(run.log)
        del run
        await turns_of_the_loop(20)
        assert held() is None
    finally:
        gc.enable()


async def test_what_an_order_leaves_out_is_the_operators_to_decide(tmp_path: Path) -> None:
    source = ScriptedSource(ANSWERS)
    source.known = ["gpt-5-mini", "auto"]
    place = Place(tmp_path, source, model="gpt-5-mini", mode="ask", fences="inline")
    run = await place.start()
    assert (run.turn.model, run.turn.mode, run.info.fences) == ("gpt-5-mini", "ask", "inline")
    run = await place.start(model="auto", mode="plan", fences="split")
    assert (run.turn.model, run.turn.mode, run.info.fences) == ("auto", "plan", "split")
    await place.service.close(1e6)


async def test_debugging_is_a_preamble(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    assert debug_preamble() in (await place.start(mode="debug")).turn.prompt
    assert debug_preamble() not in (await place.start()).turn.prompt
    await place.service.close(1e6)


async def test_images_are_files_beside_the_conversation_that_the_prompt_names(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    images = [Image(2, "image/png", b"one"), Image(0, "image/gif", b"two"), Image(2, "image/png", b"one")]
    messages: Sequence[Message] = [UserMessage("a"), AssistantMessage("b"), UserMessage("c")]
    run = await place.start(*messages, images=images)
    folder = Path(run.turn.folder) / "images"
    assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"one", b"two"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert run.turn.prompt.count(str(folder / images[0].name)) == 2
    assert run.turn.prompt.count(str(folder / images[1].name)) == 1
    await run.gone()


# --- conversations --------------------------------------------------------------------------------------


async def test_a_conversation_goes_on_in_its_folder_and_session(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    first = await place.start(workspace="project")
    await first.gone()
    second = await place.start(conversation_id=first.info.conversation_id)
    assert second.turn.session_id == "session-1"
    assert (second.turn.folder, second.turn.workspace) == (first.turn.folder, first.turn.workspace)
    await second.gone()
    third = await place.start(conversation_id=first.info.conversation_id, workspace="project")
    await third.gone()
    with pytest.raises(errors.InvalidRequest):
        await place.start(conversation_id=first.info.conversation_id, workspace=".")
    assert place.folders == 1


async def test_the_next_turn_waits_for_an_agent_that_lingers(tmp_path: Path) -> None:
    goes, answers = asyncio.Event(), asyncio.Event()
    place = Place(tmp_path, ScriptedSource([*ANSWERS, Until(goes)], [Until(answers), *ANSWERS]))
    first = await place.start()
    await first.finished()
    second = await place.start(conversation_id=first.info.conversation_id)
    assert second.turn.session_id == "session-1"
    with pytest.raises(errors.ConversationBusy):
        await place.start(conversation_id=first.info.conversation_id)
    await turns_of_the_loop()
    assert (second.done, len(place.source.turns)) == (None, 1)
    goes.set()
    await first.gone()
    with pytest.raises(errors.ConversationBusy):  # the end of the first lets nobody in beside the second
        await place.start(conversation_id=first.info.conversation_id)
    answers.set()
    await second.gone()
    await (await place.start(conversation_id=first.info.conversation_id)).gone()


async def test_a_conversation_is_busy_while_its_run_is(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource([[STARTED], say("Half"), forever()]))
    run = await place.start()
    await turns_of_the_loop()
    with pytest.raises(errors.ConversationBusy):
        await place.start(conversation_id=run.info.conversation_id)
    await place.service.cancel(run.id, "me")
    await run.gone()
    again = await place.start(conversation_id=run.info.conversation_id)
    assert again.turn.session_id == "session-1"
    await place.service.close(0)


async def test_a_conversation_whose_agent_never_had_a_session_is_sent_again(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource([errors.GatewayFault("It did not start.")], ANSWERS))
    first = await place.start(UserMessage("Remember me."))
    await first.gone()
    second = await place.start(UserMessage("Who am I?"), conversation_id=first.info.conversation_id)
    assert second.turn.session_id is None
    assert "Remember me." in second.turn.prompt
    await second.gone()


async def test_a_session_that_is_gone_is_replaced_by_what_was_said(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    first = await place.start(UserMessage("Remember me."))
    await first.gone()
    place.source.knows_sessions = False
    second = await place.start(UserMessage("Who am I?"), conversation_id=first.info.conversation_id)
    assert second.turn.session_id is None
    assert "Remember me." in second.turn.prompt
    assert "All" in second.turn.prompt
    await second.gone()


async def test_a_session_that_turns_out_to_be_gone_is_replaced_unnoticed(tmp_path: Path) -> None:
    lost: list[Step] = [[RunFailed(failure=errors.SessionLost("Gone.").failure())]]
    place = Place(tmp_path, ScriptedSource(ANSWERS, lost, ANSWERS))
    first = await place.start(UserMessage("Remember me."))
    await first.gone()
    second = await place.start(UserMessage("Who am I?"), conversation_id=first.info.conversation_id)
    assert (await second.finished()).failure is None
    await second.gone()
    _, tried, result = place.source.turns
    assert (tried.session_id, tried.prompt) == ("session-1", "Who am I?")
    assert result.session_id is None
    assert "Remember me." in result.prompt


async def test_a_second_turn_may_wait_for_the_first(tmp_path: Path) -> None:
    goes = asyncio.Event()
    place = Place(tmp_path, ScriptedSource([[STARTED], Until(goes), *ANSWERS]), when_busy="wait")
    first = await place.start()
    await turns_of_the_loop()
    others = [asyncio.ensure_future(place.start(conversation_id=first.info.conversation_id)) for _ in range(2)]
    await turns_of_the_loop()
    assert not any(other.done() for other in others)
    goes.set()
    for other in others:
        await (await other).gone()
    assert [asked.session_id for asked in place.source.turns] == [None, "session-1", "session-1"]


@pytest.mark.parametrize(("setting", "option"), [("refuse", "wait"), ("wait", "refuse")])
async def test_a_request_says_whether_it_waits(tmp_path: Path, setting: WhenBusy, option: WhenBusy) -> None:
    goes = asyncio.Event()
    place = Place(tmp_path, ScriptedSource([[STARTED], Until(goes), *ANSWERS]), when_busy=setting)
    first = await place.start()
    await turns_of_the_loop()
    asking = asyncio.ensure_future(place.start(conversation_id=first.info.conversation_id, when_busy=option))
    await turns_of_the_loop()
    if option == "refuse":
        with pytest.raises(errors.ConversationBusy):
            await asking
        goes.set()
    else:
        assert not asking.done()
        goes.set()
        await (await asking).gone()


# --- looking --------------------------------------------------------------------------------------------


async def test_a_run_is_found_cancelled_and_removed_by_its_owner_alone(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource([[STARTED], say("Half"), forever()]))
    run = await place.start()
    await turns_of_the_loop()
    assert await place.service.find(run.id, "me") is run
    assert (await response_of(await place.service.find(run.id, "me"))).status == "streaming"
    for refused in (place.service.find, place.service.cancel):
        with pytest.raises(errors.NotFound):
            await refused(run.id, "you")
    conversation_id = run.info.conversation_id or ""
    assert await place.service.remove(conversation_id, "you") == "unknown"
    assert run.done is None
    assert (await place.service.cancel(run.id, "me")).status == "error"
    await run.gone()
    past = await place.service.find(run.id, "me")
    assert isinstance(past, StoredRun)
    assert await response_of(await place.service.find(run.id, "me")) == folded(run)
    assert (await place.service.cancel(run.id, "me")).status == "error"
    assert await place.service.remove(conversation_id, "me") == "removed"
    assert place.folders == 0
    with pytest.raises(errors.NotFound):
        await place.service.find(run.id, "me")


class Vanishing(SqliteStore):
    """Somebody deletes everything just before the events are looked at for the nth time."""

    def __init__(self, directory: Path, conversation_id: str, looks: int) -> None:
        super().__init__(directory)
        self._conversation_id, self._looks = conversation_id, looks

    async def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = 1_000_000) -> EventPage:
        self._looks -= 1
        if not self._looks:
            assert await self.delete_conversation(self._conversation_id, owner)
        return await super().events(run_id, owner, after=after, max_bytes=max_bytes)


@pytest.mark.parametrize("looks", [1, 2])
async def test_an_answer_that_is_deleted_while_it_is_looked_up_is_none(tmp_path: Path, looks: int) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    run = await place.start()
    await run.gone()
    whole = await response_of(await place.service.find(run.id, "me"))
    assert whole.status == "completed"
    place.service.store = Vanishing(tmp_path, run.info.conversation_id or "", looks)
    with pytest.raises(errors.NotFound):
        await response_of(await place.service.find(run.id, "me"))
    await place.service.store.close()


async def test_the_same_order_again_is_the_same_run(tmp_path: Path) -> None:
    goes = asyncio.Event()
    place = Place(tmp_path, ScriptedSource([[STARTED], Until(goes), *ANSWERS]))
    run = await place.start(idempotency_key="k", body=b"one")
    assert await place.start(idempotency_key="k", body=b"one") is run
    with pytest.raises(errors.IdempotencyMismatch):
        await place.start(idempotency_key="k", body=b"two")
    other = await place.start(idempotency_key="k", body=b"one", owner="you")
    assert other is not run
    goes.set()
    await asyncio.gather(run.gone(), other.gone())
    past = await place.ordered(idempotency_key="k", body=b"one")
    assert (past.id, type(past)) == (run.id, StoredRun)
    assert len(place.source.turns) == 2


# --- one after the other --------------------------------------------------------------------------------


async def test_a_turn_that_fails_does_not_lose_the_conversation(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS, [errors.GatewayFault("It did not start.")], ANSWERS))
    first = await place.start()
    await first.gone()
    await (await place.start(conversation_id=first.info.conversation_id)).gone()
    third = await place.start(conversation_id=first.info.conversation_id)
    assert third.turn.session_id == "session-1"
    await third.gone()
    assert place.folders == 1


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"model": "gpt-9"}, errors.ModelUnavailable),
        ({"model": "--force"}, errors.ModelUnavailable),
        ({"model": "a\0b"}, errors.ModelUnavailable),
        ({"model": "a\nb"}, errors.ModelUnavailable),
        ({"model": "x" * 1_000_000}, errors.ModelUnavailable),
        ({"workspace": "/"}, errors.WorkspaceForbidden),
        ({"workspace": "missing"}, errors.InvalidRequest),
        ({"conversation_id": "conv_0"}, errors.NotFound),
    ],
)
async def test_what_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path, order: dict[str, Any], error: type[errors.GatewayError]
) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    with pytest.raises(error) as caught:
        await place.start(**order)
    assert len(str(caught.value)) < 1000
    assert (place.folders, place.service.runs.running, place.source.turns) == (0, 0, [])


async def test_all_places_taken_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS, [[STARTED], forever()]), max_runs=1)
    first = await place.start()
    await first.gone()
    second = await place.start()
    with pytest.raises(errors.TooManyRuns):
        await place.start()
    with pytest.raises(errors.TooManyRuns):
        await place.start(conversation_id=first.info.conversation_id)
    assert place.folders == 2
    await place.service.cancel(second.id, "me")
    await second.gone()
    await place.start(conversation_id=first.info.conversation_id)
    await place.service.close(0)


async def test_a_disk_that_cannot_be_written_is_reported_and_keeps_nothing_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def forbidden(*_: object, **__: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    place = Place(tmp_path, ScriptedSource(ANSWERS))
    first = await place.start()
    await first.gone()
    image = Image(0, "image/png", b"one")
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", full)  # of the new file
        with pytest.raises(errors.HostExhausted, match="No space left on device"):
            await place.start(images=[image])
        with pytest.raises(errors.HostExhausted):
            await place.start(images=[image], conversation_id=first.info.conversation_id)
        patched.setattr(os, "mkdir", full)
        with pytest.raises(errors.HostExhausted, match="No space left on device"):
            await place.start()
        patched.setattr(os, "mkdir", forbidden)
        with pytest.raises(errors.GatewayFault, match="cannot write its files: Permission denied"):
            await place.start()
    assert place.service.runs.running == 0
    await (await place.start(images=[image], conversation_id=first.info.conversation_id)).gone()


async def test_closing_ends_the_runs_and_closes_the_source(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource([[STARTED], forever()]))
    run = await place.start()
    await turns_of_the_loop()
    await place.service.close(0)
    await place.service.close(0)
    assert run.done is not None
    assert (place.source.is_closed, place.source.ended) == (True, 1)
    with pytest.raises(errors.ShuttingDown):
        await place.start()


async def test_a_message_does_not_end_a_run_that_is_just_being_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    service = place.service
    service._parts = replace(service._parts, is_alive=lambda instance: True)
    prepare, is_preparing, may_continue = service.starter.prepare, asyncio.Event(), asyncio.Event()

    async def slowly(request: RunRequest, conversation_id: str) -> list[tuple[Image, str]]:
        if request.request_id == "lost":
            is_preparing.set()
            await may_continue.wait()
        return await prepare(request, conversation_id)

    monkeypatch.setattr(service.starter, "prepare", slowly)
    new = replace(new_run("lost", "conv"), instance="instance", workspace=str(place.work))
    await place.store.begin_run(new)
    stored = await place.store.run("lost", ME)
    assert stored is not None
    request = RunRequest(owner=ME, messages=[UserMessage("Say it.")], request_id="lost")
    resuming = asyncio.create_task(service.resume(request, stored))
    await is_preparing.wait()
    with pytest.raises(errors.ConversationBusy):
        await place.start(UserMessage("And then?"), owner=ME, conversation_id="conv")
    may_continue.set()
    await (await resuming).gone()
    ended = await place.store.run("lost", ME)
    assert ended is not None
    assert (ended.state, len(place.source.turns)) == ("completed", 1)


async def test_runs_that_start_at_the_same_moment_may_take_the_last_places(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource([[STARTED], forever()]), max_runs=2)
    runs = await asyncio.gather(place.start(), place.start())
    assert len({run.id for run in runs}) == 2


async def test_the_tools_of_a_large_request_do_not_keep_the_loop_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    by: list[threading.Thread] = []

    def compressed(offer: Offer, request: RunRequest) -> bytes:
        by.append(threading.current_thread())
        return continuation_of(offer, request)

    monkeypatch.setattr(starter, "continuation_of", compressed)
    offer = Offer(tools=[Tool("look", "Looks.", {"type": "object"})])
    for body in (b"{}", b" " * 300_000):
        await (await place.start(offer=offer, body=body)).gone()
    assert [thread is threading.main_thread() for thread in by] == [True, False]
    await place.service.close(0)
