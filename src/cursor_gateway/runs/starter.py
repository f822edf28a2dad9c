"""A request and its conversation in; a run out: composed, begun in the store, and started in its conversation's
folder."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from os import urandom
from os.path import basename
from secrets import token_bytes
from time import time_ns
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import StoreUnavailable, unwritable
from cursor_gateway.model.caller_tools import Offer, preamble, usable
from cursor_gateway.model.messages import AssistantMessage, Image, Instructions, Message, UserMessage, place_images
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.prompting.prompt import bare, debug_preamble, render
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.conversations import (
    TOOLS,
    Conversation,
    Conversations,
    new_conversation_id,
)
from cursor_gateway.runs.handle import run_info, stored_state
from cursor_gateway.runs.log import LiveLog
from cursor_gateway.runs.machine import WaitLimits
from cursor_gateway.runs.repeats import AccountErrors, body_hash, quote
from cursor_gateway.runs.run import Run, RunPlan, TurnWatch
from cursor_gateway.runs.run_service import Defaults, RunRequest, continuation_of
from cursor_gateway.sources.base import TOOLS_SERVER, OfferedTools, Source, Turn, never
from cursor_gateway.sources.ledger import LostAgents
from cursor_gateway.sources.private_files import data_of, private_folder, write_private
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.sources.tool_endpoint import ToolEndpoint
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from cursor_gateway.store.base import (
    CONTINUATION,
    Idempotency,
    KeyTaken,
    Lease,
    NewMessage,
    NewRun,
    Refused,
    RunRecord,
    Store,
)
from cursor_gateway.workspace.host import write_images
from cursor_gateway.workspace.permissions import Permissions
from cursor_gateway.workspace.roots import Workspaces
from cursor_gateway.workspace.snapshots import Snapshots

if TYPE_CHECKING:
    from cursor_gateway.runs.queue import RunQueue

_RESUMED = "(The process that ran the agent was lost. Another agent continues from here.)"
_GO_ON = (
    "You were interrupted: the machine that you worked on was lost. What you had said until then is above. Some of the "
    "work may be done. Look at the state of the files before you repeat anything, then continue."
)

_NEW_FILE = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHORT_REQUEST = 64 * 1024  # bytes: a longer one is stored by a thread, after the run has begun
_LARGE_REQUEST = 256 * 1024  # bytes of its body


class TurnBuilder(Struct, frozen=True, kw_only=True):
    """How one run asks its agent, at first and whenever the agent has to be started again."""

    conversation: Conversation
    turn: Turn  # with all but the prompt and the session
    preamble: Callable[[str | None], Sequence[str]]  # what holds for this run, by the source that is asked
    images: Sequence[tuple[Image, str]]  # and their files; their messages are counted as the request has them
    prompts: "Prompts"
    knows_session: bool  # the agent still has the conversation's session

    def with_source(self, source: str | None) -> "TurnBuilder":
        """The same for another source, which has no session."""
        return replace(self, turn=replace(self.turn, source=source), knows_session=False)

    @property
    def known_tokens(self) -> int:
        """About the size of the session."""
        return estimate_tokens_by_sample("\n".join(message.text for message in self.conversation.known))

    def initial(self) -> Turn:
        if not self.knows_session:
            return self.fresh()
        conversation = self.conversation
        prompt = self.prompts.next(self._messages(conversation.new, conversation.given_known))
        return replace(self.turn, prompt=prompt, session_id=conversation.session_id)

    def fresh(self, more: Sequence[Message] = ()) -> Turn:
        """For an agent without a session: the whole conversation, and what has happened in the run since."""
        conversation = self.conversation
        said = [*conversation.known, *conversation.new, *more]
        prompt = self.prompts.initial(self._messages(said, conversation.given_known - len(conversation.known)))
        return replace(self.turn, prompt=prompt, session_id=None)

    def resumed(
        self, source: SourceRouter, session_id: str | None, new: Sequence[Message], more: Sequence[Message]
    ) -> Turn:
        """In the middle of the run: only the `new` messages if the agent still has its session, else everything."""
        turn = replace(self.turn, session_id=session_id)
        if session_id is None or not source.has_session(turn):
            return self.fresh(more)
        return replace(turn, prompt=self.prompts.next([*map(Instructions, self.preamble(self.turn.source)), *new]))

    def _messages(self, said: Sequence[Message], first: int) -> list[Message]:
        """`first` is the place in the request of the first of these messages."""
        instructions = [Instructions(text) for text in self.preamble(self.turn.source)]
        if not self.images:
            return [*instructions, *said]
        shown = [(replace(image, message=image.message - first), path) for image, path in self.images]
        shown = [(image, path) for image, path in shown if 0 <= image.message < len(said)]
        placed = place_images(said, [image for image, _ in shown], [path for _, path in shown])
        return [*instructions, *placed]


class Prompts:
    """The prompts of one conversation. A file in its folder records that the agent's session has only seen bare
    messages. Once it has seen sections, a bare message could pretend to be one, so all messages are fenced from then
    on.
    """

    def __init__(self, secret: bytes, folder: str) -> None:
        """`secret` is the gateway's, so that no one else can predict a marker."""
        self._secret, self._is_bare = secret, f"{folder}/bare"
        self._shared = f"{data_of(folder)}/.bare"

    def initial(self, messages: Sequence[Message]) -> str:
        """For a session that begins with it."""
        if (prompt := bare(messages)) is not None:
            self._set_bare()
            return prompt
        self._set_fenced()
        return render(messages, self._secret)

    def next(self, messages: Sequence[Message]) -> str:
        """For a session that continues."""
        if (prompt := bare(messages)) is not None and os.path.exists(self._is_bare):
            return prompt
        self._set_fenced()
        return render(messages, token_bytes(), goes_on=True)

    def _set_bare(self) -> None:
        """The file is a link to one that all conversations share, as far as possible: a link takes a tenth of the time
        of a new file. A file may have some ten thousand links, then a new one is shared."""
        try:
            os.link(self._shared, self._is_bare)
        except FileExistsError:
            pass
        except OSError:
            try:
                os.close(os.open(self._is_bare, _NEW_FILE, 0o600))
            except OSError:
                return  # then the next prompt is fenced
            with suppress(OSError):
                os.unlink(self._shared)
            with suppress(OSError):
                os.link(self._is_bare, self._shared)

    def _set_fenced(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._is_bare)


def now_ms() -> int:
    return time_ns() // 1_000_000


class RunParts(Struct, frozen=True):
    """What runs are made of, and where: the parts of one gateway that start them."""

    source: SourceRouter
    runs: Runs
    store: Store
    conversations: Conversations
    workspaces: Workspaces
    defaults: Defaults
    instance: str  # the name of this gateway
    now_ms: Callable[[], int]
    endpoint: ToolEndpoint = msgspec.field(default_factory=ToolEndpoint)
    waits: WaitLimits = WaitLimits()
    account_errors: AccountErrors | None = None
    secret: bytes | None = None  # keys the markers of prompts; without one, they change with each gateway
    permissions: Permissions | None = None
    is_alive: Callable[[str], bool] = lambda instance: True  # whether another gateway still drives its runs
    must_store_seconds: float | None = None  # in a cluster, a run is nowhere but in the store; see `LiveLog`
    lost_agents: LostAgents | None = None
    snapshots: Snapshots | None = None
    queue: "RunQueue | None" = None

    def asks_others(self, request: RunRequest) -> bool:
        """Whether somebody else than the caller, who cannot be asked, decides about what no rule allows."""
        wait = self.defaults.wait_for_approval_seconds > 0
        return wait and request.may_be_asked is False and request.offer is None


class RunStarter:
    def __init__(self, parts: RunParts, permissions: Permissions) -> None:
        self._source, self._runs, self._store = parts.source, parts.runs, parts.store
        self._conversations, self._defaults, self._permissions = parts.conversations, parts.defaults, permissions
        self._parts, self._secret = parts, parts.secret or token_bytes()

    async def prepare(self, request: RunRequest, conversation_id: str) -> list[tuple[Image, str]]:
        """Everything that takes time: the request's images, written to files of the conversation.

        An agent with the caller's tools may open no files: it has the tools' endpoint, and a tool that shows images.
        """
        if request.offer is not None:
            await self._parts.endpoint.open()
            return []
        if not request.images:
            return []
        folder = self._conversations.folder(conversation_id)
        try:
            return await asyncio.to_thread(write_images, request.images, folder / "images")
        except OSError as error:
            raise unwritable(error) from error

    async def close(self) -> None:
        await self._parts.endpoint.close()

    async def start(
        self,
        request: RunRequest,
        conversation: Conversation,
        images: Sequence[tuple[Image, str]],
        when_done: Callable[[Run], None],
        *,
        needs_lease: bool,
    ) -> Run | Refused:
        """Composes the run, begins it in the store, unless that can wait for its first events, and runs it. Raises
        `OSError`. `needs_lease`: not while the store has another run in the conversation.
        """
        continuation = await _continuation(request)
        run, turns = self._compose(request, conversation, images, when_done, continuation)
        try:
            refused = await self._begin(run, request, continuation, needs_lease=needs_lease)
        except BaseException:
            self._withdraw(turns.turn.offered)
            raise
        if refused is not None:
            self._withdraw(turns.turn.offered)
            return refused
        self._run(run, request, turns, turns.initial())
        run.log.begin_soon()
        return run

    def _compose(
        self,
        request: RunRequest,
        conversation: Conversation,
        images: Sequence[tuple[Image, str]],
        when_done: Callable[[Run], None],
        continuation: bytes,
    ) -> tuple[Run, TurnBuilder]:
        """The run and its turns, and nothing of it has begun."""
        source = self._source.named(request.source)
        if source.has_spares and not conversation.version and not images and request.offer is None:
            conversation = self._with_spare(source, request, conversation)
        info = RunInfo(
            id=new_run_id() if request.claim is None else request.claim.run_id,
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            mode=request.mode or self._defaults.mode,
            model=request.model,
            conversation_id=conversation.id,
            fences=request.fences or self._defaults.fences,
            include=request.include or frozenset(),
            page_url=self._page_url,
            prices=self._defaults.prices,
            trace=request.trace,
        )
        folder = self._conversations.make_folder(conversation)
        new = self._new_run(request, info, conversation, continuation)
        log = LiveLog(self._store, new, self._parts.now_ms, self._parts.must_store_seconds)
        plan = self._plan(request, self._watch(request, info, conversation), when_done)
        run = Run(info, log, plan, caller=self._caller(request, info, folder))
        offered = None
        if request.offer is not None and run.caller is not None:
            offered = self._offered(request, request.offer, run, folder)
            images = list(zip(request.images, run.caller.show(request.images), strict=True))
        return run, self._turns(request, run, conversation, images, folder, offered)

    async def _begin(self, run: Run, request: RunRequest, continuation: bytes, *, needs_lease: bool) -> Refused | None:
        """None: the run may start, whether or not it has begun in the store yet."""
        continuation = continuation if len(continuation) > _SHORT_REQUEST else b""  # else it is stored with the run
        needs_lease = needs_lease or self._parts.must_store_seconds is not None or request.claim is not None
        is_kept_later = len(request.kept) > len(run.begun.request) or continuation
        must_begin = request.idempotency_key is not None or request.repeat_key or is_kept_later or needs_lease
        if must_begin and (refused := await run.log.begin()) is not None:
            return refused if needs_lease or isinstance(refused, KeyTaken) else None
        await self._end_lost_agents()
        if continuation:
            with suppress(StoreUnavailable):  # without it, only a late result finds no agent
                await self._store.keep_request(run.id, request.owner, CONTINUATION, continuation)
        return None

    async def resume(
        self, request: RunRequest, stored: RunRecord, conversation: Conversation, images: Sequence[tuple[Image, str]]
    ) -> Run:
        """Continues a run that another process began, and that this one has the lease of. Raises `OSError`."""
        await self._end_lost_agents()
        info = replace(run_info(stored), page_url=self._page_url, prices=self._defaults.prices, trace=request.trace)
        state = await stored_state(self._store, stored)
        folder = self._conversations.make_folder(conversation)
        prompt = next((message.text for message in conversation.new if isinstance(message, UserMessage)), "")
        assembler, closing = state.interrupt(info, prompt, _RESUMED)
        new = self._new_run(request, info, conversation)
        log = LiveLog(self._store, new, self._parts.now_ms, self._parts.must_store_seconds)
        log.resume(Lease(stored.id, stored.epoch), state, stored.first_event_ms)
        run = Run(info, log, self._plan(request), caller=self._caller(request, info), assembler=assembler)
        turns = self._turns(request, run, _interrupted(conversation, state.text), images, folder, None)
        log.add(closing)
        self._run(run, request, turns, turns.fresh())
        run.flush_soon()
        return run

    @property
    def _page_url(self) -> str | None:
        return self._defaults.page_url if self._permissions.can_allow else None

    async def _end_lost_agents(self) -> None:
        """After the run has begun: what has lost the conversation has lost it by now."""
        if self._parts.lost_agents is not None:
            await self._parts.lost_agents.end()

    def _plan(
        self,
        request: RunRequest,
        watch: TurnWatch | None = None,
        when_done: Callable[[Run], None] = lambda run: None,
    ) -> RunPlan:
        waits, is_others = self._parts.waits, self._parts.asks_others(request)
        if is_others:
            waits = replace(waits, answer_seconds=self._defaults.wait_for_approval_seconds)
        return RunPlan(
            request_id=request.request_id,
            waits=waits,
            asks_others=is_others,
            needs_readers=(request.when_client_leaves or self._defaults.when_client_leaves) == "cancel",
            reconnect_seconds=self._defaults.reconnect_seconds if request.attempt != "only" else 0,
            watch=watch,
            when_done=when_done,
        )

    def _caller(self, request: RunRequest, info: RunInfo, folder: str = "") -> CallerTools | None:
        if request.offer is None:
            return None
        server, scratch = self._source.named(request.source).tools_server, f"{folder}/scratch" if folder else ""
        return CallerTools(request.offer, run_id=info.id, server=server, scratch=scratch)

    def _run(self, run: Run, request: RunRequest, turns: TurnBuilder, turn: Turn) -> None:
        if request.offer is not None or turn.approver is not None:  # then it may wait
            self._runs.make_room(request.owner)
        quote(run.log, request, turn.workspace, self._defaults.mode)
        self._runs.start(run, turn, turns, ended=partial(self._withdraw, turn.offered))

    def _withdraw(self, offered: OfferedTools | None) -> None:
        if offered is not None:
            self._parts.endpoint.withdraw(offered.url)

    def _watch(self, request: RunRequest, info: RunInfo, conversation: Conversation) -> TurnWatch | None:
        """Where the agent may change files: not with the caller's tools, which replace its own."""
        if self._parts.snapshots is None or request.offer is not None or info.mode not in ("agent", "debug"):
            return None
        return self._parts.snapshots.turn(conversation.id, info.id, conversation.workspace)

    def _can_ask(self, request: RunRequest) -> bool:
        """Whether its agent can ask the caller or others, and wait."""
        wanted = self._parts.asks_others(request) or request.may_be_asked
        return wanted is not False and self._source.may_ask(request.source, wanted)

    def _turns(
        self,
        request: RunRequest,
        run: Run,
        conversation: Conversation,
        images: Sequence[tuple[Image, str]],
        folder: str,
        offered: OfferedTools | None,
    ) -> TurnBuilder:
        info, approver = run.info, run if self._can_ask(request) else None
        turn = Turn(
            run_id=info.id,
            source=request.source,
            prompt="",
            model=info.model or "",
            mode=info.mode,
            workspace=conversation.workspace,
            folder=folder,
            session_id=conversation.session_id,
            offered=offered,
            person=None if run.plan.asks_others else approver,
            approver=approver,
            is_waiting=run.waits if approver is not None else never,
            allow=self._allowed(request, conversation),
            owner=request.owner,
            next_folder=f"{self._conversations.directory}/{new_conversation_id()}",
        )
        return TurnBuilder(
            conversation=conversation,
            turn=turn,
            preamble=lambda source: _preamble(request, info, self._source.named(source).tools_server),
            images=images,
            prompts=Prompts(self._secret, folder),
            knows_session=conversation.session_id is not None and self._source.has_session(turn),
        )

    def _with_spare(self, source: Source, request: RunRequest, conversation: Conversation) -> Conversation:
        """A new conversation, in the folder of an agent that waits for it, if there is one."""
        if request.new_conversation or self._source.may_ask(request.source, request.may_be_asked):
            return conversation
        folder = source.claim_spare(
            Turn(
                run_id="",
                source=request.source,
                prompt="",
                model=request.model or "",
                mode=request.mode or self._defaults.mode,
                workspace=conversation.workspace,
                folder="",
                allow=self._allowed(request, conversation),
                owner=request.owner,
            )
        )
        return conversation if folder is None else replace(conversation, id=basename(folder))

    def _allowed(self, request: RunRequest, conversation: Conversation) -> list[str]:
        """With the caller's tools nothing else is allowed."""
        if request.offer is not None:
            return []
        found = self._permissions.rules(request.owner, conversation.id, conversation.workspace)
        return [*found, *request.allow]

    def _offered(self, request: RunRequest, offer: Offer, run: Run, folder: str) -> OfferedTools:
        with private_folder(self._conversations.data, folder) as opened:
            write_private(opened, TOOLS, msgspec.json.encode(offer.tools))
        url = self._parts.endpoint.offer(run) if usable(offer) or request.images else ""
        return OfferedTools(server=TOOLS_SERVER, url=url, runner=run)

    def _new_run(
        self, request: RunRequest, info: RunInfo, conversation: Conversation, continuation: bytes = b""
    ) -> NewRun:
        is_new = not conversation.known
        images = request.images if request.offer is None else ()  # those that have files; see `prepare`
        key, claim = request.idempotency_key, request.claim
        if claim is not None and request.repeat_key:  # which is stored later, and must be when the command is done
            claim = replace(claim, outcome=b"")
        return NewRun(
            id=info.id,
            conversation_id=conversation.id,
            owner=request.owner,
            instance=self._parts.instance,
            workspace=conversation.workspace,
            model=info.model or "",
            mode=info.mode,
            created=info.created,
            fences=info.fences,
            include=info.include,
            messages=(
                _kept(request.messages, images) if is_new else _kept(conversation.new, images, conversation.given_known)
            ),
            started_ms=self._parts.now_ms(),
            idempotency=Idempotency(key, body_hash(request)) if key is not None else None,
            volume=self._parts.workspaces.volume_of(conversation.workspace),
            client=request.client,
            claim=claim,
            request=request.kept if len(request.kept) <= _SHORT_REQUEST else b"",
            continuation=continuation if len(continuation) <= _SHORT_REQUEST else b"",
            is_first=not conversation.version,
        )


async def _continuation(request: RunRequest) -> bytes:
    """Compressing the tools of a large request takes a while."""
    if request.offer is None:
        return b""
    if len(request.body) <= _LARGE_REQUEST:
        return continuation_of(request.offer, request)
    return await asyncio.to_thread(continuation_of, request.offer, request)


def _interrupted(conversation: Conversation, said: str) -> Conversation:
    """With the output of an agent whose process died, and instructions for the next one."""
    answered = [AssistantMessage(said)] if said.strip() else []
    return replace(
        conversation,
        session_id=None,
        known=[*conversation.known, *conversation.new, *answered],
        new=[UserMessage(_GO_ON)],
        given_known=conversation.given_known + len(conversation.new) + len(answered),
    )


def new_run_id() -> str:
    return f"chat_{urandom(16).hex()}"


def _preamble(request: RunRequest, info: RunInfo, server: str) -> list[str]:
    lines = [debug_preamble()] if info.mode == "debug" else []
    lines += [preamble(request.offer, server)] if request.offer is not None else []
    return [*lines, request.instructions] if request.instructions else lines


def _kept(messages: Sequence[Message], images: Sequence[Image], first: int = 0) -> list[NewMessage]:
    """Messages from people; instructions and tool results come from the client. `first` is the place of the first of
    these messages in the request."""
    kept = []
    for place, message in enumerate(messages, first):
        match message:
            case UserMessage(text=text):
                kept.append(NewMessage("user", text, tuple(image.name for image in images if image.message == place)))
            case AssistantMessage(text=text) if text:
                kept.append(NewMessage("assistant", text))
            case _:
                pass
    return kept
