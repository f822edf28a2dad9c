"""A request in; what it is, out: a repetition, whose reply is known; results for a run that waits; or a new request,
with its source, its model, its tools and its conversation."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.model.caller_tools import NamedTool, Offer, RequiredTool, ToolResult
from cursor_gateway.model.document_events import reply_usage
from cursor_gateway.model.documents import Usage
from cursor_gateway.model.messages import Message
from cursor_gateway.model.requests import INTERACTIVE, WhenClientLeaves
from cursor_gateway.runs.admission import find_run
from cursor_gateway.runs.caller_tools import run_of
from cursor_gateway.runs.conversations import TOOLS, Conversation
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.log import StoredLog
from cursor_gateway.runs.repeats import (
    Deliveries,
    FailedQuestions,
    Repeats,
    body_hash,
    check_body,
    quote,
    repair_key,
    request_key,
    results_in,
    scope_of,
)
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Continued, RunRequest
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.base import Model, Turn
from cursor_gateway.sources.cursor.models import is_alias, resolve
from cursor_gateway.store.base import IdempotentRun

_LONGEST_MODEL = 200  # characters of a name; the agent's own have some 40
_LATEST_RETRY_MS = 900_000  # after the end of a run: SDKs wait ten minutes for a reply, and then up to a minute
_PROCESS_ENDED = (
    errors.GatewayRestarted.code,
    errors.RunnerLost.code,
    errors.ShuttingDown.code,
)  # while the agent was at work


class Identified(Struct, frozen=True):
    """A request, with the reply that it gets from a run that exists already; None: it starts a new one."""

    request: RunRequest
    key: str | None  # identifies it if it is repeated
    reply: Continued | None = None


class Identify:
    def __init__(self, parts: RunParts, repeats: Repeats, questions: FailedQuestions) -> None:
        self._source, self._runs, self._store, self._defaults = parts.source, parts.runs, parts.store, parts.defaults
        self._conversations, self._workspaces = parts.conversations, parts.workspaces
        self._parts, self._repeats, self._questions = parts, repeats, questions
        self.deliveries = Deliveries(parts.defaults.reconnect_seconds)

    # --- the agent ----------------------------------------------------------------------------------

    async def with_source(self, request: RunRequest) -> RunRequest:
        """An interactive request goes to a source that can wait for answers, unless the default source has the
        conversation.
        """
        if request.source is None and self._parts.asks_others(request):
            request = replace(request, source=INTERACTIVE)
        if request.source != INTERACTIVE:
            return request
        knows = self._source.interactive is not None and await self._default_knows(request)
        return replace(request, source=None if knows else self._source.interactive)

    async def _default_knows(self, request: RunRequest) -> bool:
        """Whether the default source has the session of the request's conversation."""
        if request.conversation_id is None:
            return False
        id = await self._conversation_of(request.conversation_id, request.owner)
        known = await self._store.conversation(id, request.owner)
        if known is None or known.session_id is None:
            return False
        turn = Turn(
            run_id="",
            prompt="",
            model="",
            workspace=known.workspace,
            folder=str(self._conversations.folder(id)),
            session_id=known.session_id,
        )
        return self._source.has_session(turn)

    async def with_model(self, request: RunRequest) -> RunRequest:
        """With one of the source's models. Raises `ModelUnavailable`."""
        name, source = request.model or self._defaults.model, self._source.named(request.source)
        _check_name(name)
        if is_alias(name, self._defaults.model_aliases):
            models: list[Model] = []
            with suppress(errors.AgentError):  # the run will report it
                models = await source.models()
            name = resolve(name, self._defaults.model_aliases, models)
        source.check_model(name)
        return replace(request, model=name)

    # --- tools --------------------------------------------------------------------------------------

    def with_tools(self, request: RunRequest) -> RunRequest:
        """The request, as far as its tools can be offered."""
        if request.offer is None:
            return request
        if (request.mode or self._defaults.mode) == "plan":
            raise errors.InvalidRequest(
                "Tools cannot be used in mode `plan`; omit `tools`, or choose another mode.", param="tools"
            )
        if self._source.named(request.source).offers_tools:
            return request
        if isinstance(request.offer.choice, RequiredTool | NamedTool):
            raise errors.InvalidRequest(
                "This gateway plays recordings, which cannot call tools; set `tool_choice` to `auto`.",
                param="tool_choice",
            )
        return replace(request, offer=None)

    async def as_side_request(self, request: RunRequest) -> RunRequest:
        """If a client that runs tools itself sends a request without `tools`, it wants a title or a summary: the agent
        must not change files for that. A request that names a mode gets it.
        """
        if request.mode is not None or self._defaults.mode in ("ask", "plan"):
            return request
        return replace(request, mode="ask") if request.has_own_tools or await self._carried_tools(request) else request

    async def _carried_tools(self, request: RunRequest) -> bool:
        """Earlier requests of the conversation that this one names did."""
        if request.conversation_id is None:
            return False
        id = await self._conversation_of(request.conversation_id, request.owner)
        known = await self._store.conversation(id, request.owner)
        return known is not None and (self._conversations.folder(known.id) / TOOLS).exists()

    # --- the conversation ---------------------------------------------------------------------------

    async def conversation(self, request: RunRequest) -> Conversation:
        if request.follows is not None:
            return await self._following(request, request.follows)
        if request.conversation_id is not None:
            workspace = None if request.workspace is None else self._workspaces.find(request.workspace)
            id = await self._conversation_of(request.conversation_id, request.owner)
            found = await self._conversations.named(id, request.owner, workspace, request.messages)
            found = replace(found, session_id=None) if request.forgets_session else found
            if not Path(found.workspace).is_dir():
                raise errors.InvalidRequest(
                    f"The workspace {found.workspace!r} no longer exists; restore it, or start a new conversation.",
                    param="conversationId",
                )
            return found
        workspace = self._workspaces.find(request.workspace)
        if not request.has_full_history:
            new = self._conversations.new(workspace, request.messages)
            return replace(new, id=request.new_conversation) if request.new_conversation else new
        return await self._conversations.find_by_history(
            scope_of(request, workspace, self._defaults.mode), request.messages
        )

    async def _following(self, request: RunRequest, run_id: str) -> Conversation:
        """The conversation that the run is the latest of, or a copy of it up to that run."""
        followed = await self._store.run(run_id, request.owner)
        if followed is None and request.has_full_history:
            return await self.conversation(replace(request, follows=None))
        if followed is None:
            raise errors.PreviousAnswerUnknown(
                "The previous answer is not stored here; send the whole conversation instead.",
                param="previous_response_id",
            )
        id, owner = followed.conversation_id, request.owner
        if (await self._store.runs_of(id, owner))[-1].id == run_id:
            return await self.conversation(replace(request, follows=None, conversation_id=id, has_full_history=False))
        conversation = await self._store.conversation(id, owner)
        known = [] if request.has_full_history else await self._conversations.said_up_to(id, owner, run_id)
        workspace = request.workspace or (None if conversation is None else conversation.workspace)
        workspace = self._workspaces.find(workspace)
        return self._conversations.new(workspace, [*known, *request.messages])

    async def _conversation_of(self, id: str, owner: str) -> str:
        """For a run's id (`chat_…`), the conversation whose latest run it is; any other id names a conversation."""
        stored = await self._store.run(id, owner) if id.startswith("chat_") else None
        if stored is None:
            return id
        if (await self._store.runs_of(stored.conversation_id, owner))[-1].id != id:
            raise errors.InvalidRequest(
                "This is not the latest answer; continue from that one, or start a new conversation.",
                param="conversationId",
            )
        return stored.conversation_id

    # --- a reply that is there already ---------------------------------------------------------------

    async def reply(self, request: RunRequest) -> Identified:
        """Whether the request is a repetition, or continues a run with results of its caller's tools."""
        if request.workspace is None and request.workspace_if_allowed is not None:
            request = replace(request, workspace=self._workspaces.allowed(request.workspace_if_allowed))
        results, also = results_in(request)
        key = await self._repeat_key(request, results)
        if request.clients_retry and request.idempotency_key is None:
            request = replace(request, question_key=key or request_key(request, self._defaults.mode))
        if key is not None and (known := await self._repeated(request, key)) is not None:
            return Identified(request, key, known)
        if (asked := await self._still_asked(request)) is not None:
            return Identified(request, key, Continued(asked, 0))
        if (continued := await self._continue_run(request, results, also)) is not None:
            if key is not None:
                hashed = body_hash(request) if key == request.idempotency_key else ""
                reply = IdempotentRun(continued.run.id, hashed, continued.after)
                await self._repeats.note(request.owner, key, reply, self._parts.now_ms())
            return Identified(request, key, continued)
        if key is not None and key != request.idempotency_key:
            request = replace(request, repeat_key=key)
        return Identified(request, key)

    async def earlier(self, request: RunRequest) -> RunHandle | None:
        """The run that the same request started before."""
        reply = None if request.attempt == "first" else self._repeats.recent(request.owner, request.repeat_key)
        if reply is not None:
            return await find_run(self._runs, self._store, reply.run_id, request.owner)
        if request.idempotency_key is None:
            return await self._waiting(request) if request.repeat_key else None
        running = self._runs.find_by_idempotency(request.owner, request.idempotency_key)
        if running is not None and (named := running.begun.idempotency) is not None:
            check_body(named.body_hash, request)
            return running
        try:
            found = await self._store.find_run_by_idempotency(request.owner, request.idempotency_key)
        except errors.StoreUnavailable:  # it costs the memory of earlier gateways, not the answer
            return None
        if found is None:
            return await self._waiting(request)
        check_body(found.body_hash, request)
        return await find_run(self._runs, self._store, found.run_id, request.owner)

    async def _waiting(self, request: RunRequest) -> RunHandle | None:
        """The same request in the queue. It costs nothing while the queue is unreachable."""
        if self._parts.queue is None or request.claim is not None:
            return None
        with suppress(errors.StoreUnavailable):
            return await self._parts.queue.find_by_key(request)
        return None

    async def _still_asked(self, request: RunRequest) -> RunHandle | None:
        """The run that answers the same question, if it has waited for somebody to allow a command: its client may have
        given up meanwhile, and ask again."""
        if not request.question_key or not self._parts.asks_others(request):
            return None
        for run_id in self._questions.runs_of(request.question_key):
            run = self._runs.find(run_id, request.owner)
            if run is None:
                with suppress(errors.NotFound, errors.StoreUnavailable):
                    return await find_run(self._runs, self._store, run_id, request.owner)
            elif run.log.state.paused_at and not (run.is_ending and run.done is None):
                return run
        return None

    async def _continue_run(
        self, request: RunRequest, results: Mapping[str, ToolResult], also: Sequence[Message]
    ) -> Continued | None:
        """Continues the run that waits for these results. None: there is none, so the request starts a new run."""
        run = self._runs.find_by_calls(results, request.owner)
        if run is None or run.caller is None or run.is_ending:
            return None
        is_new = bool(run.caller.new(results))
        if also and not is_new:
            return None  # a run in the middle of its work takes no messages: another one gets the whole conversation
        continued = await continue_run(run, results, request.when_client_leaves, also, request.offer)
        if is_new:
            quote(run.log, request, run.turn.workspace, self._defaults.mode)
            self._questions.ask_next(run.id, request.question_key)
        return continued

    async def _repeat_key(self, request: RunRequest, results: Mapping[str, ToolResult]) -> str | None:
        """Identifies the request if it is repeated. None: its client may ask the same twice to get two answers, and the
        request contains no results of calls that were made here.
        """
        if not results and request.attempt == "only":
            return None
        if request.idempotency_key is not None:
            return request.idempotency_key
        if request.attempt == "only" and not await self._made_one(results, request.owner):
            return None
        return request_key(request, self._defaults.mode)

    async def _made_one(self, call_ids: Iterable[str], owner: str) -> bool:
        """Whether a run of this owner's made one of these calls."""
        for run_id in {made_by for id in call_ids if (made_by := run_of(id)) is not None}:
            if self._runs.find(run_id, owner) is not None:
                return True
            with suppress(errors.StoreUnavailable):
                if await self._store.run(run_id, owner) is not None:
                    return True
        return False

    async def _repeated(self, request: RunRequest, key: str) -> Continued | None:
        """The reply that this request got before, unless the client wants another one, or the run failed.

        A failure is returned again if a retry cannot help, and to clients that retry automatically also if the agent
        had started working: the same work must not be done twice. An agent with the caller's tools does no work but
        through them, so another one may continue if the gateway ended; calls that it had made are returned again.
        """
        is_asked_again = request.may_be_asked_again and self.deliveries.is_asked_again(request.owner, key)
        if request.attempt == "first" or is_asked_again:
            self._repeats.forget(request.owner, key)
            return None
        known = await self._repeats.find(request.owner, key)
        if known is None:
            return None
        is_named = key == request.idempotency_key
        if is_named:
            check_body(known.body_hash, request)
        try:
            run = await find_run(self._runs, self._store, known.run_id, request.owner)
        except errors.NotFound:  # deleted with its conversation
            self._repeats.forget(request.owner, key)
            return None
        if not await _waits_in_vain(run, known.after):
            is_void = await self._is_void(run, request, is_named=is_named) or (
                not is_named and request.attempt == "retry" and self._ended_long_ago(run)
            )
            if is_void or (not is_named and request.attempt != "only" and await self._was_received(run, known.after)):
                self._repeats.forget(request.owner, key)
                return None
        return Continued(run, known.after, await usage_at(run, known.after))

    def _ended_long_ago(self, run: RunHandle) -> bool:
        """No SDK waits so long before a retry: this is of another question with the same words, whose first attempt
        did not arrive."""
        ended_ms = run.log.run.ended_ms if isinstance(run.log, StoredLog) else None
        return ended_ms is not None and self._parts.now_ms() - ended_ms > _LATEST_RETRY_MS

    async def _is_void(self, run: RunHandle, request: RunRequest, *, is_named: bool) -> bool:
        """The run was stopped, or failed in a way that allows another attempt."""
        if run.done is None:
            return run.is_ending
        failure = run.done.failure
        if failure is None:
            return False
        if request.attempt != "only" and not is_named:
            if failure.code in _PROCESS_ENDED and request.offer is not None:
                return True
            return failure.code == errors.RunCancelled.code or (
                failure.retryable and not (await run.state()).has_output
            )
        return failure.is_transient or not is_named

    async def _was_received(self, run: RunHandle, after: int) -> bool:
        """Whether the client received this reply: it has sent results of its calls, or continued the conversation. Then
        it repeats the request on purpose, for example after a rewind, and not as a retry.
        """
        if (pause := (await run.state()).next_pause(after)) is not None:
            return run.count > pause.number
        with suppress(errors.StoreUnavailable):
            store, owner = self._store, run.owner
            runs = await store.runs_of(run.info.conversation_id or "", owner)
            if not runs or runs[-1].id == run.id:
                return False
            repair = await store.find_run_by_idempotency(owner, repair_key(run.id))
            return repair is None or runs[-1].id != repair.run_id
        return False


def _check_name(model: str) -> None:
    """No agent is started for a string that cannot be a model name: it could become a command-line option, or an
    invalid argument.
    """
    if len(model) > _LONGEST_MODEL or model.startswith("-") or not model.isprintable():
        raise errors.unknown_model(model[:_LONGEST_MODEL], [])


async def continue_run(
    run: Run,
    results: Mapping[str, ToolResult],
    when_client_leaves: WhenClientLeaves | None,
    also: Sequence[Message] = (),
    offer: Offer | None = None,
) -> Continued:
    """With results of calls that the run has made."""
    after = run.take_results(results, also, offer)
    run.set_when_client_leaves(when_client_leaves)
    return Continued(run, after, await usage_at(run, after))


async def _waits_in_vain(run: RunHandle, after: int) -> bool:
    """Whether the reply ends with calls, and the gateway ended before it got any of their results."""
    if run.done is None or run.done.failure is None or run.done.failure.code not in _PROCESS_ENDED:
        return False
    state = await run.state()
    pause = state.next_pause(after)
    if pause is None or pause.number != state.paused_at:
        return False
    called = [state.calls.get(call.tool_call_id) for call in pause.event.envelope.metadata.waiting_for or ()]
    return bool(called) and all(call is not None and call.state == "interrupted" for call in called)


async def usage_at(run: RunHandle, pause: int) -> Usage | None:
    """The tokens of the last model call before this pause."""
    paused = await run.pause(pause)
    return reply_usage(paused) if paused is not None else None
