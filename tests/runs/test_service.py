"""The service: an order becomes a run in its conversation's folder, or is refused and leaves nothing behind."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.core.images import Image
from cursor_gateway.core.prompt import AssistantMessage, Message, UserMessage, debug_preamble
from cursor_gateway.errors import (
    ConversationBusy,
    GatewayError,
    GatewayFault,
    InvalidRequest,
    ModelUnavailable,
    NotFound,
    ShuttingDown,
    TooManyRuns,
    WorkspaceForbidden,
)
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.registry import Runs
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.service import Defaults, Order, Service
from cursor_gateway.runs.workspaces import Workspaces
from tests.runs.scripted import (
    ENDLESS,
    FINISHED,
    STARTED,
    ScriptedSource,
    Step,
    Until,
    forever,
    say,
    turns_of_the_loop,
)

ANSWERS: list[Step] = [[STARTED], say("All"), [FINISHED]]


class Place:
    """A service below a folder, and how many conversations have one there."""

    def __init__(self, tmp_path: Path, source: ScriptedSource, max_runs: int = 4, **defaults: Any) -> None:
        (tmp_path / "work" / "project").mkdir(parents=True)
        self.source = source
        self.work, self.folder = tmp_path / "work", tmp_path / "conversations"
        self.service = Service(
            source,
            Runs(source, ENDLESS, max_runs),
            Conversations(self.folder, 10),
            Workspaces(self.work, []),
            Defaults(**{"model": "auto", **defaults}),
        )

    def start(self, *messages: Message, **order: Any) -> Run:
        return self.service.start(Order(owner="me", messages=messages or [UserMessage("Say it.")], **order))

    @property
    def folders(self) -> int:
        return len(list(self.folder.iterdir())) if self.folder.exists() else 0


def test_an_order_becomes_a_turn(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS))
        run = place.start(request_id="req_1", workspace="project", include=frozenset({"raw"}), fences="inline")
        turn = run.turn
        assert (turn.prompt, turn.model, turn.mode, turn.session_id) == ("Say it.", "auto", "agent", None)
        assert turn.workspace == str(place.work / "project")
        assert Path(turn.folder).parent == place.folder
        assert run.id == turn.run_id
        assert run.id.startswith("chat_")
        assert (run.info.fences, run.info.include, run.info.mode) == ("inline", {"raw"}, "agent")
        assert run.info.conversation_id == Path(turn.folder).name
        assert (run.owner, run.request_id) == ("me", "req_1")
        assert datetime.fromisoformat(run.info.created).tzinfo is not None
        await run.gone()
        assert place.source.turns == [turn]

    asyncio.run(live())


def test_what_an_order_leaves_out_is_the_operators_to_decide(tmp_path: Path) -> None:
    async def live() -> None:
        source = ScriptedSource(ANSWERS)
        source.known = ["gpt-5-mini", "auto"]
        place = Place(tmp_path, source, model="gpt-5-mini", mode="ask", fences="inline")
        run = place.start()
        assert (run.turn.model, run.turn.mode, run.info.fences) == ("gpt-5-mini", "ask", "inline")
        run = place.start(model="auto", mode="plan", fences="split")
        assert (run.turn.model, run.turn.mode, run.info.fences) == ("auto", "plan", "split")
        await place.service.close(1e6)

    asyncio.run(live())


def test_debugging_is_a_preamble(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS))
        assert debug_preamble() in place.start(mode="debug").turn.prompt
        assert debug_preamble() not in place.start().turn.prompt
        await place.service.close(1e6)

    asyncio.run(live())


def test_images_are_files_beside_the_conversation_that_the_prompt_names(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS))
        images = [Image(2, "image/png", b"one"), Image(0, "image/gif", b"two"), Image(2, "image/png", b"one")]
        messages: Sequence[Message] = [UserMessage("a"), AssistantMessage("b"), UserMessage("c")]
        run = place.start(*messages, images=images)
        folder = Path(run.turn.folder) / "images"
        assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"one", b"two"]
        assert folder.stat().st_mode & 0o777 == 0o700
        assert run.turn.prompt.count(str(folder / images[0].name)) == 2
        assert run.turn.prompt.count(str(folder / images[1].name)) == 1
        await run.gone()

    asyncio.run(live())


# --- conversations --------------------------------------------------------------------------------------


def test_a_conversation_goes_on_in_its_folder_and_session(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS))
        first = place.start(workspace="project")
        await first.gone()
        second = place.start(conversation_id=first.info.conversation_id)
        assert second.turn.session_id == "session-1"
        assert (second.turn.folder, second.turn.workspace) == (first.turn.folder, first.turn.workspace)
        await second.gone()
        third = place.start(conversation_id=first.info.conversation_id, workspace="project")
        await third.gone()
        with pytest.raises(InvalidRequest):
            place.start(conversation_id=first.info.conversation_id, workspace=".")
        assert place.folders == 1

    asyncio.run(live())


def test_the_next_turn_waits_for_an_agent_that_lingers(tmp_path: Path) -> None:
    async def live() -> None:
        goes, answers = asyncio.Event(), asyncio.Event()
        place = Place(tmp_path, ScriptedSource([*ANSWERS, Until(goes)], [Until(answers), *ANSWERS]))
        first = place.start()
        await first.finished()
        second = place.start(conversation_id=first.info.conversation_id)
        assert second.turn.session_id == "session-1"
        with pytest.raises(ConversationBusy):
            place.start(conversation_id=first.info.conversation_id)
        await turns_of_the_loop()
        assert (second.done, len(place.source.turns)) == (None, 1)
        goes.set()
        await first.gone()
        with pytest.raises(ConversationBusy):  # the end of the first lets nobody in beside the second
            place.start(conversation_id=first.info.conversation_id)
        answers.set()
        await second.gone()
        await place.start(conversation_id=first.info.conversation_id).gone()

    asyncio.run(live())


def test_a_conversation_is_busy_while_its_run_is(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource([[STARTED], say("Half"), forever()]))
        run = place.start()
        await turns_of_the_loop()
        with pytest.raises(ConversationBusy):
            place.start(conversation_id=run.info.conversation_id)
        await place.service.runs.cancel(run.id, "me")
        await run.gone()
        again = place.start(conversation_id=run.info.conversation_id)
        assert again.turn.session_id == "session-1"
        await place.service.close(0)

    asyncio.run(live())


def test_a_conversation_whose_agent_never_had_a_session_is_forgotten(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource([GatewayFault("It did not start.")]))
        run = place.start()
        assert place.folders == 1
        await run.gone()
        assert place.folders == 0
        with pytest.raises(NotFound):
            place.start(conversation_id=run.info.conversation_id)

    asyncio.run(live())


def test_a_turn_that_fails_does_not_lose_the_conversation(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS, [GatewayFault("It did not start.")], ANSWERS))
        first = place.start()
        await first.gone()
        await place.start(conversation_id=first.info.conversation_id).gone()
        third = place.start(conversation_id=first.info.conversation_id)
        assert third.turn.session_id == "session-1"
        await third.gone()
        assert place.folders == 1

    asyncio.run(live())


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"model": "gpt-9"}, ModelUnavailable),
        ({"model": "--force"}, ModelUnavailable),
        ({"model": "a\0b"}, ModelUnavailable),
        ({"model": "a\nb"}, ModelUnavailable),
        ({"model": "x" * 1_000_000}, ModelUnavailable),
        ({"workspace": "/"}, WorkspaceForbidden),
        ({"workspace": "missing"}, InvalidRequest),
        ({"conversation_id": "conv_0"}, NotFound),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path, order: dict[str, Any], error: type[GatewayError]
) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS))
        with pytest.raises(error) as caught:
            place.start(**order)
        assert len(str(caught.value)) < 1000
        assert (place.folders, place.service.runs.running, place.source.turns) == (0, 0, [])

    asyncio.run(live())


def test_all_places_taken_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS, [[STARTED], forever()]), max_runs=1)
        first = place.start()
        await first.gone()
        second = place.start()
        with pytest.raises(TooManyRuns):
            place.start()
        with pytest.raises(TooManyRuns):
            place.start(conversation_id=first.info.conversation_id)
        assert place.folders == 2
        await place.service.runs.cancel(second.id, "me")
        await second.gone()
        place.start(conversation_id=first.info.conversation_id)
        await place.service.close(0)

    asyncio.run(live())


def test_a_disk_that_cannot_be_written_is_told_and_keeps_nothing_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    async def live() -> None:
        place = Place(tmp_path, ScriptedSource(ANSWERS))
        first = place.start()
        await first.gone()
        image = Image(0, "image/png", b"one")
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", full)
            with pytest.raises(GatewayFault, match="cannot write its files: No space left on device"):
                place.start(images=[image])
            with pytest.raises(GatewayFault):
                place.start(images=[image], conversation_id=first.info.conversation_id)
            patched.setattr(Path, "mkdir", full)
            with pytest.raises(GatewayFault, match="cannot write its files: No space left on device"):
                place.start()
        assert (place.folders, place.service.runs.running) == (1, 0)
        await place.start(images=[image], conversation_id=first.info.conversation_id).gone()

    asyncio.run(live())


def test_closing_ends_the_runs_removes_the_folders_and_closes_the_source(tmp_path: Path) -> None:
    async def live() -> None:
        place = Place(tmp_path, ScriptedSource([[STARTED], forever()]))
        run = place.start()
        await turns_of_the_loop()
        await place.service.close(0)
        await place.service.close(0)
        assert run.done is not None
        assert (place.folders, place.source.is_closed, place.source.ended) == (0, True, 1)
        with pytest.raises(ShuttingDown):
            place.start()

    asyncio.run(live())
