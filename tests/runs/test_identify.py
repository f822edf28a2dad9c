"""Requests that come again: one agent answers them, whatever broke in between."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.model.caller_tools import Offer, Tool
from cursor_gateway.model.messages import AssistantMessage, UserMessage
from cursor_gateway.runs.handle import StoredRun
from cursor_gateway.runs.repeats import Deliveries
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Continued, RunRequest, delete_answer
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, Step, Until, say, true
from tests.runs.test_service import ANSWERS, Place


def asking(text: str = "Say it.", **more: Any) -> RunRequest:
    asked = {"owner": "me", "messages": [UserMessage(text)], "has_full_history": True, "attempt": "unknown", **more}
    return RunRequest(**asked)


def running(continued: Continued) -> Run:
    assert isinstance(continued.run, Run)
    return continued.run


async def test_a_retry_joins_the_run_while_it_goes_on_and_when_it_has_ended(tmp_path: Path) -> None:
    goes_on = Until(asyncio.Event())
    place = Place(tmp_path, ScriptedSource([[STARTED], say("All"), goes_on, [FINISHED]]))
    continuing = place.service
    first = await continuing.take(asking())
    joined = await continuing.take(asking())
    assert (joined.run, joined.after) == (first.run, 0)
    goes_on.event.set()
    await running(first).gone()
    assert (await continuing.take(asking())).run.id == first.run.id
    assert len(place.source.turns) == 1


@pytest.mark.parametrize(("minutes", "is_new"), [(14, False), (16, True)])
async def test_a_numbered_retry_comes_within_minutes_of_the_end(tmp_path: Path, minutes: int, is_new: bool) -> None:
    """Later it is of another question with the same words, whose first attempt did not arrive."""
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    first = await place.service.take(asking(attempt="retry"))
    await running(first).gone()
    identify = place.service._identify
    parts = identify._parts
    identify._parts = replace(parts, now_ms=lambda: parts.now_ms() + minutes * 60_000)
    again = await place.service.take(asking(attempt="retry"))
    assert (again.run.id != first.run.id) == is_new
    if isinstance(again.run, Run):
        await again.run.gone()


async def test_another_gateway_on_the_same_store_knows_the_question(tmp_path: Path) -> None:
    source = ScriptedSource(ANSWERS)
    place = Place(tmp_path, source)
    first = await place.service.take(asking())
    await running(first).gone()
    place.service._repeats._recent.clear()  # as after a restart
    again = await place.service.take(asking())
    assert isinstance(again.run, StoredRun)
    assert (again.run.id, len(source.turns)) == (first.run.id, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [UserMessage("Say something else.")]},
        {"client_session": "another"},
        {"owner": "you"},
        {"model": "auto"},
        {"attempt": "first"},
        {"attempt": "only"},
        {"question_id": "another turn"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_another_question_starts_another_run(tmp_path: Path, other: dict[str, Any]) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    continuing = place.service
    first = await continuing.take(asking())
    await running(first).gone()
    second = await continuing.take(asking(**other))
    assert second.run.id != first.run.id
    await running(second).gone()


@pytest.mark.parametrize(
    "script",
    [
        [[STARTED], say("All"), errors.AgentCrashed("It crashed.")],
        # Claude Code asks once more, without streaming, when it gets a 404.
        [errors.ModelUnavailable("No such model.")],
    ],
    ids=["the agent had begun", "another try cannot help"],
)
async def test_a_failure_is_repeated(tmp_path: Path, script: list[Step]) -> None:
    place = Place(tmp_path, ScriptedSource(script, ANSWERS))
    continuing = place.service
    first = await continuing.take(asking())
    await running(first).gone()
    again = await continuing.take(asking())
    assert (again.run.id, len(place.source.turns)) == (first.run.id, 1)


async def test_an_agent_that_could_not_begin_is_started_again(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource([errors.AgentOverloaded("Full.")], ANSWERS))
    continuing = place.service
    first = await continuing.take(asking())
    await running(first).gone()
    again = await continuing.take(asking())
    assert again.run.id != first.run.id
    await running(again).gone()
    assert (await continuing.take(asking())).run.id == again.run.id


async def test_a_question_whose_client_names_it_may_have_other_tools_when_it_comes_again(tmp_path: Path) -> None:
    """Codex offers the tools of a server that has started in the meantime."""
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    continuing = place.service
    first = await continuing.take(asking(question_id="turn", model="auto"))
    await running(first).gone()
    offer = Offer(tools=[Tool("weather")])
    again = await continuing.take(asking(question_id="turn", model="auto", offer=offer))
    assert again.run.id == first.run.id


# --- the same question, asked for another answer ------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "is_new"),
    [({}, True), ({"attempt": "retry"}, False), ({"question_id": "turn"}, False)],
    ids=["a client that does not say", "a numbered retry", "a named question"],
)
async def test_a_client_that_has_had_its_answer_gets_another(
    tmp_path: Path, more: dict[str, Any], is_new: bool
) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    now = [0.0]
    place.service._identify.deliveries = Deliveries(5, lambda: now[0])
    continuing = place.service
    first = await continuing.take(asking(**more))
    await running(first).gone()
    place.service.delivered("me", first.key)
    now[0] = 4.9  # the reply may have been lost on its way
    assert (await continuing.take(asking(**more))).run.id == first.run.id
    now[0] = 5.0
    second = await continuing.take(asking(**more))
    assert (second.run.id != first.run.id) == is_new
    # The answer to that one was not delivered yet.
    assert (await continuing.take(asking(**more))).run.id == second.run.id
    if isinstance(second.run, Run):
        await second.run.gone()


# --- clients that disconnect ------------------------------------------------------------------------


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_run_waits_for_its_client_to_reconnect(tmp_path: Path, comes_back: bool) -> None:
    goes_on = Until(asyncio.Event())
    place = Place(tmp_path, ScriptedSource([[STARTED], say("All"), goes_on, [FINISHED]]), reconnect_seconds=0.05)
    run = running(await place.service.take(asking()))
    with run.reader() as reader:
        await reader.next()
    assert not run.is_ending
    if comes_back:
        with run.reader():
            await asyncio.sleep(0.1)
            assert not run.is_ending
            goes_on.event.set()
            await run.finished()
        assert run.done is not None
        assert run.done.failure is None
    else:
        await true(lambda: run.is_ending)
        assert run.done is not None or (await run.finished()).failure is not None
    await run.gone()


async def test_a_cancelled_run_is_no_answer_to_a_retry(tmp_path: Path) -> None:
    script: list[Step] = [[STARTED], say("All"), Until(asyncio.Event())]
    place = Place(tmp_path, ScriptedSource(script, ANSWERS), reconnect_seconds=0)
    continuing = place.service
    run = running(await continuing.take(asking()))
    with run.reader() as reader:
        await reader.next()
    await run.gone()
    again = running(await continuing.take(asking()))
    assert again.id != run.id
    await again.gone()


# --- answers that are looked up ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "is_kept"), [(0, False), (10, True), (64 * 1024 + 1, True), (4 * 1024 * 1024 + 1, False)]
)
async def test_what_a_dialect_keeps_is_stored_with_the_run(tmp_path: Path, size: int, is_kept: bool) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    run = running(await place.service.take(asking(kept=b"x" * size)))
    await run.entered()
    assert await place.store.kept_request(run.id, "me", 0) == (b"x" * size if is_kept else None)
    await run.gone()


async def test_a_store_that_is_away_costs_the_lookup_and_not_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))

    async def away(*_: object) -> None:
        raise errors.StoreUnavailable("It is away.")

    monkeypatch.setattr(place.store, "keep_request", away)
    run = running(await place.service.take(asking(kept=b"x" * (64 * 1024 + 1))))
    assert (await run.finished()).failure is None
    await run.gone()


# --- answers that are continued ---------------------------------------------------------------------


async def test_the_latest_answer_is_continued_in_its_conversation(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    first = await place.start()
    await first.gone()
    second = await place.start(UserMessage("And now?"), follows=first.id)
    assert (second.info.conversation_id, second.turn.prompt) == (first.info.conversation_id, "And now?")
    await second.gone()


async def test_an_older_answer_is_continued_in_a_copy_of_its_conversation(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource([[STARTED], say("One."), [FINISHED]], ANSWERS))
    first = await place.start(UserMessage("First?"), workspace="project")
    await first.gone()
    second = await place.start(UserMessage("Second?"), conversation_id=first.info.conversation_id)
    await second.gone()
    fork = await place.start(UserMessage("Another?"), follows=first.id)
    assert fork.info.conversation_id != first.info.conversation_id
    assert fork.turn.workspace == first.turn.workspace
    said = fork.turn.prompt
    assert all(text in said for text in ("First?", "One.", "Another?"))
    assert "Second?" not in said
    await fork.gone()


@pytest.mark.parametrize("owner", ["me", "you"])
async def test_an_answer_that_is_unknown_cannot_be_continued(tmp_path: Path, owner: str) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    first = await place.start()
    await first.gone()
    with pytest.raises(errors.PreviousAnswerUnknown):
        await place.start(AssistantMessage("x"), UserMessage("?"), owner=owner, follows=first.id[:-1])
    if owner == "you":
        with pytest.raises(errors.PreviousAnswerUnknown):
            await place.start(owner=owner, follows=first.id)


async def test_a_deleted_answer_takes_its_conversation_along_if_it_was_the_only_one(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedSource(ANSWERS))
    continuing = place.service
    first = running(await continuing.take(asking(kept=b"{}")))
    await first.gone()
    conversation = first.info.conversation_id or ""
    second = running(await continuing.take(asking("More.", kept=b"{}", follows=first.id)))
    await second.gone()
    assert not await delete_answer(place.service, first.id, "you", 0)
    assert await delete_answer(place.service, first.id, "me", 0)
    assert not await delete_answer(place.service, first.id, "me", 0)
    assert await place.store.conversation(conversation, "me") is not None
    third = running(await continuing.take(asking("Alone.", kept=b"{}")))
    await third.gone()
    assert await delete_answer(place.service, third.id, "me", 0)
    assert await place.store.conversation(third.info.conversation_id or "", "me") is None
