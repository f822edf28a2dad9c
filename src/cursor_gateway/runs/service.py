"""An order in; a run, started in its conversation's folder, or the one that was ordered before, out."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.core.documents import ChatResponse, Envelope, Mode
from cursor_gateway.core.fences import Fences
from cursor_gateway.core.fingerprints import Scope, fingerprint
from cursor_gateway.core.images import Image, place_images
from cursor_gateway.core.prompt import AssistantMessage, Instructions, Message, UserMessage, debug_preamble, render
from cursor_gateway.core.run_info import Include, RunInfo, WhenBusy, WhenClientLeaves
from cursor_gateway.core.unfinished import Unfinished
from cursor_gateway.errors import (
    ConversationBusy,
    GatewayFault,
    IdempotencyMismatch,
    InvalidRequest,
    NotFound,
    RunCancelled,
    StoreUnavailable,
    unknown_model,
)
from cursor_gateway.runs.conversations import Conversation, Conversations
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.past import PastRun
from cursor_gateway.runs.registry import Runs
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.workspaces import Workspaces
from cursor_gateway.sources.base import Source, Turn
from cursor_gateway.store.base import Idempotency, NewMessage, NewRun, Store

_LONGEST_MODEL = 200  # characters of a name; the agent's own have some 40


class Order(Struct, frozen=True, kw_only=True):
    """What somebody wants to have done."""

    owner: str
    request_id: str = ""
    messages: Sequence[Message]
    images: Sequence[Image] = ()
    instructions: str = ""  # for this turn alone, beside the conversation
    is_whole: bool = False  # the messages are the whole conversation, not only what is new in it
    client_session: str = ""  # the client's own name for it
    tools: tuple[str, ...] = ()
    model: str | None = None
    mode: Mode | None = None
    workspace: str | None = None
    conversation_id: str | None = None
    fences: Fences | None = None
    include: Set[Include] = frozenset()
    when_client_leaves: WhenClientLeaves | None = None
    idempotency_key: str | None = None
    body: bytes = b""  # what was asked, to the byte: a key that comes again must ask the same


class Defaults(Struct, frozen=True, kw_only=True):
    """For what an order leaves out."""

    model: str
    mode: Mode = "agent"
    fences: Fences = "split"
    when_busy: WhenBusy = "refuse"
    when_client_leaves: WhenClientLeaves = "cancel"


class Service:
    def __init__(
        self,
        source: Source,
        runs: Runs,
        store: Store,
        conversations: Conversations,
        workspaces: Workspaces,
        defaults: Defaults,
        instance: str,
        now_ms: Callable[[], int],
    ) -> None:
        self.source, self.runs, self.store, self.defaults = source, runs, store, defaults
        self.workspaces, self.conversations = workspaces, conversations
        self._instance, self._now_ms = instance, now_ms

    # --- starting -----------------------------------------------------------------------------------

    async def start(self, order: Order) -> Run | PastRun:
        """Raises a `RequestError` for what cannot be, `ModelUnavailable` for a model that is known to be none."""
        model = order.model or self.defaults.model
        _check_name(model)
        self.source.check_model(model)
        if (joined := await self._ordered_before(order)) is not None:
            return joined
        self.runs.check_free()
        conversation = self._conversation(order)
        while await self._has_waited(conversation.id):
            conversation = self._conversation(order)  # what was said meanwhile counts
        self.runs.check_free()
        try:
            run = self._start(order, model, conversation)
        except OSError as error:
            raise GatewayFault(
                f"The gateway cannot write its files: {error.strerror}; see `cursor-gateway doctor`."
            ) from error
        if run is None:  # the same order came twice at once
            joined = await self._ordered_before(order)
            if joined is None:
                raise StoreUnavailable("The history does not know a run that it has just refused; try again.")
            return joined
        return run

    async def _ordered_before(self, order: Order) -> Run | PastRun | None:
        if order.idempotency_key is None:
            return None
        running = self.runs.find_by_idempotency(order.owner, order.idempotency_key)
        if running is not None and running.idempotency is not None:
            _check_body(running.idempotency.body_hash, order)
            return running
        try:
            found = self.store.find_run_by_idempotency(order.owner, order.idempotency_key)
        except StoreUnavailable:  # it costs the memory of earlier gateways, not the answer
            return None
        if found is None:
            return None
        _check_body(found.body_hash, order)
        return await self.find(found.run_id, order.owner)

    def _conversation(self, order: Order) -> Conversation:
        if order.conversation_id is not None:
            workspace = None if order.workspace is None else self.workspaces.find(order.workspace)
            id = self._conversation_of(order.conversation_id, order.owner)
            found = self.conversations.named(id, order.owner, workspace, order.messages)
            if not Path(found.workspace).is_dir():
                raise InvalidRequest(
                    f"This conversation works in {found.workspace!r}, which is gone; put it back, or begin a new one.",
                    param="conversationId",
                )
            return found
        workspace = self.workspaces.find(order.workspace)
        if not order.is_whole:
            return self.conversations.new(workspace, order.messages)
        return self.conversations.told(self._scope(order, workspace), order.messages)

    def _conversation_of(self, id: str, owner: str) -> str:
        """Of an answer's id (`chat_…`, or `chatcmpl-…` as OpenAI's clients have it) the conversation that it ends."""
        run_id = f"chat_{id.removeprefix('chatcmpl-')}" if id.startswith("chatcmpl-") else id
        stored = self.store.run(run_id, owner) if run_id.startswith("chat_") else None
        if stored is None:
            return id
        if self.store.runs_of(stored.conversation_id, owner)[-1].id != run_id:
            raise InvalidRequest(
                "The conversation has gone on after this answer; go on after its latest one, or begin a new one.",
                param="conversationId",
            )
        return stored.conversation_id

    async def _has_waited(self, id: str) -> bool:
        """For its turn, since there was a run in the conversation. False: it may start."""
        latest = self.conversations.latest(id)
        if latest is None or latest.is_ending:
            return False
        match self.defaults.when_busy:
            case "refuse":
                raise ConversationBusy("This conversation has a run that has not ended; wait for it, or cancel it.")
            case "wait":
                await latest.finished()
                return True

    def _start(self, order: Order, model: str, conversation: Conversation) -> Run | None:
        """None when the order's idempotency key is another run's."""
        info = RunInfo(
            id=f"chat_{uuid4().hex}",
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            mode=order.mode or self.defaults.mode,
            model=model,
            conversation_id=conversation.id,
            fences=order.fences or self.defaults.fences,
            include=order.include,
        )
        folder = self.conversations.folder(conversation.id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        images = _written(order.images, folder / "images")
        turn = Turn(
            run_id=info.id,
            prompt="",
            model=model,
            mode=info.mode,
            workspace=conversation.workspace,
            folder=str(folder),
            session_id=conversation.session_id,
        )

        def asking(*, is_known: bool) -> Turn:
            """With what was said before, unless the agent knows it."""
            first = conversation.given_known if is_known else 0
            said = conversation.new if is_known else [*conversation.known, *conversation.new]
            offset = 0 if is_known else len(conversation.known) - conversation.given_known
            shown = [(replace(image, message=image.message - first + offset), path) for image, path in images]
            shown = [(image, path) for image, path in shown if 0 <= image.message < len(said)]
            preamble = [debug_preamble()] if info.mode == "debug" else []
            preamble += [order.instructions] if order.instructions else []
            placed = place_images(said, [image for image, _ in shown], [path for _, path in shown])
            session_id = conversation.session_id if is_known else None
            return replace(turn, prompt=render([*map(Instructions, preamble), *placed]), session_id=session_id)

        is_known = conversation.session_id is not None and self.source.has_session(turn)
        journal = Journal(self.store, self._new_run(order, info, conversation), self._now_ms)
        if order.is_whole:
            scope = self._scope(order, conversation.workspace)
            journal.fingerprint = lambda answer: fingerprint(scope, [*order.messages, AssistantMessage(answer)])
        if not journal.begin():
            return None
        run = Run(info, asking(is_known=is_known), order.owner, order.request_id, journal)
        run.needs_readers = (order.when_client_leaves or self.defaults.when_client_leaves) == "cancel"
        self.runs.start(
            run,
            after=self.conversations.latest(conversation.id),
            without_session=(lambda: asking(is_known=False)) if is_known else None,
            ended=lambda: self.conversations.end(conversation.id, run),
        )
        self.conversations.begin(conversation.id, run)
        return run

    def _new_run(self, order: Order, info: RunInfo, conversation: Conversation) -> NewRun:
        is_new = not conversation.known
        key = order.idempotency_key
        return NewRun(
            id=info.id,
            conversation_id=conversation.id,
            owner=order.owner,
            instance=self._instance,
            workspace=conversation.workspace,
            model=info.model or "",
            mode=info.mode,
            created=info.created,
            fences=info.fences,
            include=info.include,
            messages=_kept(order.messages if is_new else conversation.new),
            started_ms=self._now_ms(),
            idempotency=Idempotency(key, _hash(order.body)) if key is not None else None,
        )

    def _scope(self, order: Order, workspace: str) -> Scope:
        return Scope(
            owner=order.owner,
            workspace=workspace,
            mode=order.mode or self.defaults.mode,
            tools=order.tools,
            client_session=order.client_session,
        )

    def answered(self, order: Order, run: Run, answer: str) -> None:
        """The caller was told something else than the run said: the next request will quote that."""
        if order.is_whole:
            told = fingerprint(self._scope(order, run.turn.workspace), [*order.messages, AssistantMessage(answer)])
            with suppress(StoreUnavailable):  # it costs the agent's memory, not the answer
                self.store.set_session(run.info.conversation_id or "", order.owner, run.session_id, told)

    # --- looking ------------------------------------------------------------------------------------

    async def find(self, id: str, owner: str) -> Run | PastRun:
        """One that goes on, or one of the history. Raises `NotFound`."""
        if (running := self.runs.find(id, owner)) is not None:
            return running
        stored = await asyncio.to_thread(self.store.run, id, owner)
        if stored is None:
            raise NotFound(f"There is no run {id[:100]!r}; see GET /v1/conversations.", param="id")
        past = PastRun(self.store, stored)
        await past.look()
        return past

    async def response(self, id: str, owner: str) -> ChatResponse:
        """The whole answer, or what there is of it now."""
        run = await self.find(id, owner)
        unfinished, reader, until = Unfinished(), run.reader(), run.count
        while reader.place < until and not reader.has_left:
            for event in await reader.next():
                unfinished.push(event)
        return unfinished.response(run.info, run.prompt)

    async def cancel(self, id: str, owner: str) -> Envelope:
        """How it ended: now, or before."""
        run = await self.find(id, owner)
        if isinstance(run, Run):
            run.stop(RunCancelled("The run was cancelled on request; start it again to have the whole answer."))
            return (await run.finished()).envelope
        if run.done is None:
            raise NotFound("Another gateway drives this run; cancel it there.", param="id")
        return run.done.envelope

    async def remove(self, conversation_id: str, owner: str) -> bool:
        """A run in it is stopped. False: there was none."""
        latest = self.conversations.latest(conversation_id)
        if latest is not None and latest.owner == owner:
            latest.stop(RunCancelled("The conversation was deleted; begin a new one."))
            await latest.gone()
        return await asyncio.to_thread(self.conversations.remove, conversation_id, owner)

    async def close(self, drain_seconds: float) -> None:
        await self.runs.close(drain_seconds)
        await self.source.close()


def _check_name(model: str) -> None:
    """No agent is started for what can be no model's name: it would be an option of its own, or no argument at all."""
    if len(model) > _LONGEST_MODEL or model.startswith("-") or not model.isprintable():
        raise unknown_model(model[:_LONGEST_MODEL], [])


def _check_body(expected: str, order: Order) -> None:
    if _hash(order.body) != expected:
        raise IdempotencyMismatch(
            "This Idempotency-Key belongs to another request; send the same body, or another key.",
            param="Idempotency-Key",
        )


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _written(images: Sequence[Image], folder: Path) -> list[tuple[Image, str]]:
    if images:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    written = []
    for image in images:
        path = folder / image.name
        path.write_bytes(image.data)
        written.append((image, str(path)))
    return written


def _kept(messages: Sequence[Message]) -> list[NewMessage]:
    """What people said; instructions and tool results are the client's own."""
    kept = []
    for message in messages:
        match message:
            case UserMessage(text=text):
                kept.append(NewMessage("user", text))
            case AssistantMessage(text=text) if text:
                kept.append(NewMessage("assistant", text))
            case _:
                pass
    return kept
