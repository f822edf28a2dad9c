"""An order in; a run, started in its conversation's folder, or the one that was ordered before, out."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Literal, TypeAlias
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import (
    ConversationBusy,
    GatewayError,
    GatewayFault,
    IdempotencyMismatch,
    InvalidRequest,
    NotFound,
    RunCancelled,
    StoreUnavailable,
    host_exhausted,
    unknown_model,
)
from cursor_gateway.model.caller_tools import NamedTool, Offer, RequiredTool, ToolResult, preamble, usable
from cursor_gateway.model.document_events import context_usage
from cursor_gateway.model.documents import ChatResponse, Envelope, Mode, Usage
from cursor_gateway.model.images import Image
from cursor_gateway.model.messages import AssistantMessage, Message, ToolMessage, UserMessage
from cursor_gateway.model.run_info import Fences, Include, RunInfo, WhenBusy, WhenClientLeaves
from cursor_gateway.prompting.fingerprints import Scope, answered, fingerprint
from cursor_gateway.prompting.prompt import debug_preamble
from cursor_gateway.runs.account_errors import AccountErrors, Asked
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.image_files import write_images
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.questions import Questions
from cursor_gateway.runs.registry import Place, Runs
from cursor_gateway.runs.removal import Removals
from cursor_gateway.runs.repeats import Repeats, question_key, run_of
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.stored_run import StoredRun
from cursor_gateway.runs.turn_builder import Conversation, Prompts, TurnBuilder
from cursor_gateway.runs.waiting import Waiting, WaitLimits
from cursor_gateway.runs.workspaces import Workspaces
from cursor_gateway.sources.base import TOOLS_SERVER, Offered, Turn
from cursor_gateway.sources.private_files import private_folder, write_private
from cursor_gateway.sources.router import SourceOrRouter, chosen
from cursor_gateway.sources.tool_server.endpoint import ToolEndpoint
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from cursor_gateway.stages.unfinished import PartialRun
from cursor_gateway.store.base import Idempotency, IdempotentRun, NewMessage, NewRun, Store

TOOLS = "tools.json"  # in a conversation's folder: those that were offered last
_LONGEST_MODEL = 200  # characters of a name; the agent's own have some 40


Removed: TypeAlias = Literal["removed", "pending", "unknown"]  # pending: agents still keep some of it, for now


class RunRequest(Struct, frozen=True, kw_only=True):
    """What somebody wants to have done."""

    owner: str
    request_id: str = ""
    source: str | None = None  # what answers; None: as usual
    messages: Sequence[Message]
    images: Sequence[Image] = ()
    instructions: str = ""  # for this turn alone, beside the conversation
    has_full_history: bool = False  # the messages are the whole conversation, not only what is new in it
    client_session: str = ""  # the client's own name for it
    offer: Offer | None = None  # tools of the caller's; then the agent may not use its own
    has_own_tools: bool = False  # the client runs tools itself, whether or not this request offers any
    forgets_session: bool = False  # the agent is told all of it, whatever it knows
    may_be_asked: bool = False  # whoever orders it can answer questions while the agent waits
    model: str | None = None
    mode: Mode | None = None
    workspace: str | None = None
    conversation_id: str | None = None
    fences: Fences | None = None
    include: Set[Include] = frozenset()
    when_client_leaves: WhenClientLeaves | None = None
    idempotency_key: str | None = None
    body: bytes = b""  # what was asked, to the byte: a key that comes again must ask the same
    repeat_key: str = ""  # names a request with tool results by what it asks; see `repeats`


class Defaults(Struct, frozen=True, kw_only=True):
    """For what an order leaves out."""

    model: str
    mode: Mode = "agent"
    fences: Fences = "split"
    when_busy: WhenBusy = "refuse"
    when_client_leaves: WhenClientLeaves = "cancel"


class Continued(Struct, frozen=True):
    """A run that goes on with what its caller has brought: the reply begins after the event of that number."""

    run: RunHandle
    after: int
    told: Usage | None = None  # by the reply before: the tokens of its last model call


class Service:
    def __init__(
        self,
        source: SourceOrRouter,
        runs: Runs,
        store: Store,
        conversations: Conversations,
        workspaces: Workspaces,
        defaults: Defaults,
        instance: str,
        now_ms: Callable[[], int],
        endpoint: ToolEndpoint | None = None,
        caller_limits: WaitLimits | None = None,
        account_errors: AccountErrors | None = None,
        secret: bytes | None = None,
    ) -> None:
        """`secret` keys the markers of prompts; without one, they change with each gateway."""
        self.source, self.runs, self.store, self.defaults = chosen(source), runs, store, defaults
        self.workspaces, self.conversations = workspaces, conversations
        self.removals = Removals(self.source, conversations)
        self._instance, self._now_ms, self._account_errors = instance, now_ms, account_errors
        self._secret = token_bytes() if secret is None else secret
        self._repeats = Repeats(store)
        self._caller_limits, self._endpoint = caller_limits or WaitLimits(), endpoint or ToolEndpoint()

    # --- starting -----------------------------------------------------------------------------------

    async def start(self, request: RunRequest) -> RunHandle:
        """Raises a `RequestError` for what cannot be, `ModelUnavailable` for a model that is known to be none."""
        model = request.model or self.defaults.model
        _check_name(model)
        self.source.named(request.source).check_model(model)
        has_tools, request = request.offer is not None, self._with_tools(request)
        if (joined := await self._find_earlier(request)) is not None:
            return joined
        if not has_tools:
            request = await self._as_side_request(request)
        asked = self._asked(request, model)
        self.runs.check_free(request.owner)
        conversation = await self._conversation(request)
        images: list[tuple[Image, str]] | None = None
        place: Place | None = None
        try:
            while True:
                if await self._has_waited(conversation.id):
                    conversation, images = await self._conversation(request), None  # what was said meanwhile counts
                elif images is None:
                    images = await self._image_files(request, conversation.id)
                elif place is None:
                    place = await self.runs.reserve(request.owner)
                elif not await self.conversations.is_current(conversation, request.owner):
                    conversation, images = await self._conversation(request), None
                else:
                    break
            return await self._start_in(conversation, request, model, images, asked)
        finally:
            if place is not None:
                place.give_back()

    async def _start_in(
        self,
        conversation: Conversation,
        request: RunRequest,
        model: str,
        images: list[tuple[Image, str]],
        asked: Asked | None,
    ) -> RunHandle:
        """With a place for the run."""
        can_ask = request.may_be_asked and self.source.named(request.source).holds_questions
        if request.offer is not None or can_ask:
            self.runs.make_room(request.owner)
        if request.offer is not None:
            await self._endpoint.open()
        if (
            known := self._repeats.recent(request.owner, request.repeat_key)
        ) is not None:  # the same came twice at once
            return await self.find(known.run_id, request.owner)
        try:
            run = await self._start(request, model, conversation, images, asked)
        except OSError as error:
            raise _unwritten(error) from error
        if run is None:  # the same order came twice at once
            joined = await self._find_earlier(request)
            if joined is None:
                raise StoreUnavailable("The history does not know a run that it has just refused; try again.")
            return joined
        return run

    async def _as_side_request(self, request: RunRequest) -> RunRequest:
        """A request without `tools` by a client that runs tools itself is for a title or a summary: the agent must not
        write for that. A request that names a mode gets it."""
        if request.mode is not None or self.defaults.mode in ("ask", "plan"):
            return request
        return replace(request, mode="ask") if request.has_own_tools or await self._carried_tools(request) else request

    async def _carried_tools(self, request: RunRequest) -> bool:
        """Earlier requests of the conversation that this one names did."""
        if request.conversation_id is None:
            return False
        id = await self._conversation_of(request.conversation_id, request.owner)
        known = await self.store.conversation(id, request.owner)
        return known is not None and (self.conversations.folder(known.id) / TOOLS).exists()

    def _asked(self, request: RunRequest, model: str) -> Asked | None:
        """Raises an `AgentError` that an agent would only repeat."""
        if self._account_errors is None:
            return None
        asked = self._account_errors.asked(request.owner, request.source, model)
        if (error := self._account_errors.known(asked)) is not None:
            self.runs.tell_repeated(error.failure(), request.owner, request.request_id)
            raise error
        return asked

    def _with_tools(self, request: RunRequest) -> RunRequest:
        """The order, as far as its tools can be offered."""
        if request.offer is None:
            return request
        if (request.mode or self.defaults.mode) == "plan":
            raise InvalidRequest(
                "In the mode `plan` the agent calls no tools; leave `tools` out, or choose another mode.", param="tools"
            )
        if self.source.named(request.source).offers_tools:
            return request
        if isinstance(request.offer.choice, RequiredTool | NamedTool):
            raise InvalidRequest(
                "Recordings are played here, which call no tools; send `tool_choice` auto.", param="tool_choice"
            )
        return replace(request, offer=None)

    async def _find_earlier(self, request: RunRequest) -> RunHandle | None:
        if request.idempotency_key is None:
            return None
        running = self.runs.find_by_idempotency(request.owner, request.idempotency_key)
        if running is not None and running.idempotency is not None:
            _check_body(running.idempotency.body_hash, request)
            return running
        try:
            found = await self.store.find_run_by_idempotency(request.owner, request.idempotency_key)
        except StoreUnavailable:  # it costs the memory of earlier gateways, not the answer
            return None
        if found is None:
            return None
        _check_body(found.body_hash, request)
        return await self.find(found.run_id, request.owner)

    async def _conversation(self, request: RunRequest) -> Conversation:
        if request.conversation_id is not None:
            workspace = None if request.workspace is None else self.workspaces.find(request.workspace)
            id = await self._conversation_of(request.conversation_id, request.owner)
            found = await self.conversations.named(id, request.owner, workspace, request.messages)
            found = replace(found, session_id=None) if request.forgets_session else found
            if not Path(found.workspace).is_dir():
                raise InvalidRequest(
                    f"This conversation works in {found.workspace!r}, which is gone; put it back, or begin a new one.",
                    param="conversationId",
                )
            return found
        workspace = self.workspaces.find(request.workspace)
        if not request.has_full_history:
            return self.conversations.new(workspace, request.messages)
        return await self.conversations.told(self._scope(request, workspace), request.messages)

    async def _conversation_of(self, id: str, owner: str) -> str:
        """Of an answer's id (`chat_…`, or `chatcmpl-…` as OpenAI's clients have it) the conversation that it ends."""
        run_id = f"chat_{id.removeprefix('chatcmpl-').partition('-')[0]}" if id.startswith("chatcmpl-") else id
        stored = await self.store.run(run_id, owner) if run_id.startswith("chat_") else None
        if stored is None:
            return id
        if (await self.store.runs_of(stored.conversation_id, owner))[-1].id != run_id:
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

    async def _image_files(self, request: RunRequest, conversation_id: str) -> list[tuple[Image, str]]:
        """None for an agent with the caller's tools, which may open no files: a tool shows them."""
        if not request.images or request.offer is not None:
            return []
        folder = self.conversations.folder(conversation_id)
        try:
            return await asyncio.to_thread(write_images, request.images, folder / "images")
        except OSError as error:
            raise _unwritten(error) from error

    async def _start(
        self,
        request: RunRequest,
        model: str,
        conversation: Conversation,
        images: Sequence[tuple[Image, str]],
        asked: Asked | None,
    ) -> Run | None:
        """None when the order's idempotency key is another run's."""
        if request.offer is None:  # with tools of the caller's the agent works elsewhere
            self.workspaces.check(conversation.workspace)
        info = RunInfo(
            id=f"chat_{uuid4().hex}",
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            mode=request.mode or self.defaults.mode,
            model=model,
            conversation_id=conversation.id,
            fences=request.fences or self.defaults.fences,
            include=request.include,
        )
        folder = self.conversations.folder(conversation.id)
        with private_folder(folder.parents[1], folder):
            pass  # it is there now
        waiting = Waiting(self._caller_limits)
        caller, offered = self._offered(request, info.id, folder, waiting)
        questions = (
            Questions(waiting) if request.may_be_asked and self.source.named(request.source).holds_questions else None
        )
        if caller is not None:
            images = list(zip(request.images, caller.show(request.images), strict=True))
        turn = Turn(
            run_id=info.id,
            source=request.source,
            prompt="",
            model=model,
            mode=info.mode,
            workspace=conversation.workspace,
            folder=str(folder),
            session_id=conversation.session_id,
            offered=offered,
            person=questions,
        )
        turns = TurnBuilder(
            conversation=conversation,
            turn=turn,
            preamble=lambda source: _preamble(request, info, self.source.named(source).tools_server),
            images=images,
            prompts=Prompts(self._secret, folder),
            knows_session=conversation.session_id is not None and self.source.has_session(turn),
        )
        journal = Journal(self.store, self._new_run(request, info, conversation), self._now_ms)
        if (request.idempotency_key is not None or request.repeat_key) and not await journal.begin():
            return None
        run = Run(
            replace(info, known_tokens=_tokens(conversation.known)) if turns.knows_session else info,
            turns.initial(),
            request.owner,
            request.request_id,
            journal,
            turns=turns,
            waiting=waiting,
            caller=caller,
            questions=questions,
        )
        self._quoted(run, request)
        if self._account_errors is not None and asked is not None:
            run.log.ended = partial(self._account_errors.heard, asked)
        run.needs_readers = (request.when_client_leaves or self.defaults.when_client_leaves) == "cancel"

        def ended() -> None:
            self.conversations.end(conversation.id, run)
            if offered is not None:
                self._endpoint.withdraw(offered.url)

        self.runs.start(run, after=self.conversations.latest(conversation.id), ended=ended)
        self.conversations.begin(conversation.id, run)
        if request.repeat_key:
            await self._repeats.note(request.owner, request.repeat_key, IdempotentRun(run.id, ""), self._now_ms())
        journal.begin_soon()
        return run

    def _offered(
        self, request: RunRequest, run_id: str, folder: Path, waiting: Waiting
    ) -> tuple[CallerTools | None, Offered | None]:
        if request.offer is None:
            return None, None
        server = self.source.named(request.source).tools_server
        scratch = str(folder / "scratch")
        caller = CallerTools(request.offer, waiting, run_id=run_id, server=server, scratch=scratch)
        with private_folder(folder.parents[1], folder) as opened:
            write_private(opened, TOOLS, msgspec.json.encode(request.offer.tools))
        url = self._endpoint.offer(caller) if usable(request.offer) or request.images else ""
        return caller, Offered(server=TOOLS_SERVER, url=url, runner=caller)

    def _quoted(self, run: Run, request: RunRequest) -> None:
        if request.has_full_history:
            scope = self._scope(request, run.turn.workspace)
            run.quoted_as(lambda answer: fingerprint(scope, [*request.messages, AssistantMessage(answer)]))

    def _new_run(self, request: RunRequest, info: RunInfo, conversation: Conversation) -> NewRun:
        is_new = not conversation.known
        key = request.idempotency_key
        return NewRun(
            id=info.id,
            conversation_id=conversation.id,
            owner=request.owner,
            instance=self._instance,
            workspace=conversation.workspace,
            model=info.model or "",
            mode=info.mode,
            created=info.created,
            fences=info.fences,
            include=info.include,
            messages=_kept(request.messages if is_new else conversation.new),
            started_ms=self._now_ms(),
            idempotency=Idempotency(key, _hash(request.body)) if key is not None else None,
        )

    def _scope(self, request: RunRequest, workspace: str) -> Scope:
        return Scope(
            owner=request.owner,
            workspace=workspace,
            mode=request.mode or self.defaults.mode,
            tools=tuple(sorted(tool.name for tool in request.offer.tools)) if request.offer is not None else (),
            client_session=request.client_session,
        )

    async def answered(self, request: RunRequest, run: Run, answer: str) -> None:
        """The caller was told something else than the run said: the next request will quote that."""
        if request.has_full_history:
            told = fingerprint(self._scope(request, run.turn.workspace), [*request.messages, AssistantMessage(answer)])
            with suppress(StoreUnavailable):  # it costs the agent's memory, not the answer
                await self.store.set_session(run.info.conversation_id or "", request.owner, run.session_id, told)

    # --- going on -----------------------------------------------------------------------------------

    async def take(self, request: RunRequest) -> Continued:
        """The reply to a request that tells the whole conversation: it may come again, bring results, or be new."""
        results, also = _brought(request)
        key = await self._repeat_key(request, results)
        if key is not None and (known := await self._repeated(request, key)) is not None:
            return known
        if (continued := await self._continue_run(request, results, also)) is not None:
            if key is not None:
                body_hash = _hash(request.body) if key == request.idempotency_key else ""
                reply = IdempotentRun(continued.run.id, body_hash, continued.after)
                await self._repeats.note(request.owner, key, reply, self._now_ms())
            return continued
        if key is not None and key != request.idempotency_key:
            request = replace(request, repeat_key=key)
        return Continued(await self.start(request), 0)

    async def _continue_run(
        self, request: RunRequest, results: Mapping[str, ToolResult], also: Sequence[Message]
    ) -> Continued | None:
        """With the run that waits for these results. None: there is none, so it is an order as others."""
        run = self.runs.find_by_calls(results, request.owner)
        if run is None or run.caller is None or run.is_ending:
            return None
        is_new = bool(run.caller.new(results))
        if also and not is_new:
            return None  # more is said to a run that goes on: it is told to another one, with all the rest
        continued = await self.continued(run, results, also, request.offer)
        if is_new:
            self._quoted(run, request)
        run.set_when_client_leaves(request.when_client_leaves)
        return continued

    async def _repeat_key(self, request: RunRequest, results: Mapping[str, ToolResult]) -> str | None:
        """By which the request is known if it comes again. None: it brings no results of calls that were made here."""
        if not results:
            return None
        if request.idempotency_key is not None:
            return request.idempotency_key
        if not await self._made_one(results, request.owner):
            return None
        scope = self._scope(request, request.workspace or "")
        more = (request.model or "", request.conversation_id or "", request.source or "", request.instructions)
        return question_key(scope, request.messages, request.offer, *more)

    async def _made_one(self, call_ids: Iterable[str], owner: str) -> bool:
        """Whether a run of this owner's made one of these calls."""
        for run_id in {made_by for id in call_ids if (made_by := run_of(id)) is not None}:
            if self.runs.find(run_id, owner) is not None:
                return True
            with suppress(StoreUnavailable):
                if await self.store.run(run_id, owner) is not None:
                    return True
        return False

    async def _repeated(self, request: RunRequest, key: str) -> Continued | None:
        """The reply that this request got before, unless its run failed.

        A failure is repeated only for an `Idempotency-Key`, and only if another try cannot help.
        """
        known = await self._repeats.find(request.owner, key)
        if known is None:
            return None
        is_named = key == request.idempotency_key
        if is_named:
            _check_body(known.body_hash, request)
        try:
            run = await self.find(known.run_id, request.owner)
        except NotFound:  # deleted with its conversation
            self._repeats.forget(request.owner, key)
            return None
        failure = run.done.failure if run.done is not None else None
        is_stopped = run.done is None and run.is_ending
        if is_stopped or (failure is not None and (failure.is_transient or not is_named)):
            self._repeats.forget(request.owner, key)
            return None
        return Continued(run, known.after, await _usage_at(run, known.after))

    async def continued(
        self,
        run: RunHandle,
        results: Mapping[str, ToolResult],
        also: Sequence[Message] = (),
        offer: Offer | None = None,
    ) -> Continued:
        after = run.answer_calls(results, also, offer)
        return Continued(run, after, await _usage_at(run, after))

    # --- looking ------------------------------------------------------------------------------------

    async def find(self, id: str, owner: str) -> RunHandle:
        """One that goes on, or one of the history. Raises `NotFound`."""
        if (running := self.runs.find(id, owner)) is not None:
            return running
        stored = await self.store.run(id, owner)
        if stored is None:
            raise _no_run(id)
        past = StoredRun(self.store, stored)
        await past.look()
        return past

    async def prompt_of(self, id: str, owner: str) -> str:
        """What was said to the agent for this run."""
        run = await self.find(id, owner)
        stored = await self.store.messages(run.info.conversation_id or "", owner)
        return "\n\n".join(message.text for message in stored if message.run_id == id and message.role == "user")

    async def response(self, id: str, owner: str) -> ChatResponse:
        """The whole answer, or what there is of it now."""
        run = await self.find(id, owner)
        unfinished, reader, until = PartialRun(), run.reader(), run.count
        while reader.place < until and not reader.has_left:
            for event in await reader.next():
                unfinished.push(event)
        if reader.has_left:  # it was deleted meanwhile
            raise _no_run(id)
        return unfinished.response(run.info, run.prompt)

    async def cancel(self, id: str, owner: str) -> Envelope:
        """How it ended: now, or before."""
        run = await self.find(id, owner)
        why = RunCancelled("The run was cancelled on request; start it again to have the whole answer.")
        return await run.cancel(why)

    async def remove(self, conversation_id: str, owner: str) -> Removed:
        """A run in it is stopped."""
        latest = self.conversations.latest(conversation_id)
        if latest is not None and latest.owner == owner:
            latest.stop(RunCancelled("The conversation was deleted; begin a new one."))
            await latest.gone()
        if not await self.conversations.remove(conversation_id, owner):
            return "unknown"
        return "removed" if await self.removals.remove(conversation_id) else "pending"

    async def close(self, drain_seconds: float) -> None:
        await self.runs.close(drain_seconds)
        await self._endpoint.close()
        await self.source.close()
        await self.removals.close()


async def _usage_at(run: RunHandle, pause: int) -> Usage | None:
    """The tokens of the last model call before this pause."""
    paused = await run.pause(pause)
    return context_usage(paused) if paused is not None else None


def _no_run(id: str) -> NotFound:
    return NotFound(f"There is no run {id[:100]!r}; see GET /v1/conversations.", param="id")


def _check_name(model: str) -> None:
    """No agent is started for what can be no model's name: it would be an option of its own, or no argument at all."""
    if len(model) > _LONGEST_MODEL or model.startswith("-") or not model.isprintable():
        raise unknown_model(model[:_LONGEST_MODEL], [])


def _check_body(expected: str, request: RunRequest) -> None:
    if _hash(request.body) != expected:
        raise IdempotencyMismatch(
            "This Idempotency-Key belongs to another request; send the same body, or another key.",
            param="Idempotency-Key",
        )


def _preamble(request: RunRequest, info: RunInfo, server: str) -> list[str]:
    told = [debug_preamble()] if info.mode == "debug" else []
    told += [preamble(request.offer, server)] if request.offer is not None else []
    return [*told, request.instructions] if request.instructions else told


def _brought(request: RunRequest) -> tuple[dict[str, ToolResult], list[Message]]:
    """The results after the last answer, and what was said beside them."""
    results: dict[str, ToolResult] = {}
    also: list[Message] = []
    first = answered(request.messages)
    for number, message in enumerate(request.messages[first:], first):
        if isinstance(message, ToolMessage):
            shown = tuple(image for image in request.images if image.message == number)
            results.setdefault(message.call_id, ToolResult(text=message.text, images=shown))
        else:
            also.append(message)
    return results, also


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _unwritten(error: OSError) -> GatewayError:
    return host_exhausted(error) or GatewayFault(
        f"The gateway cannot write its files: {error.strerror}; see `cursor-gateway doctor`."
    )


def _tokens(messages: Sequence[Message]) -> int:
    return estimate_tokens_by_sample("\n".join(message.text for message in messages))


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
