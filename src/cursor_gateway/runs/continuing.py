"""A request that contains the whole conversation in; its reply out: the one it got before, the next of a run that waits
for its tool results, or the first of a new run."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import GatewayRestarted, NotFound, RunCancelled, RunnerLost, ShuttingDown, StoreUnavailable
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import reply_usage
from cursor_gateway.model.documents import Usage
from cursor_gateway.model.messages import Message
from cursor_gateway.model.requests import WhenClientLeaves
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.repeats import repair_key, request_key, run_of
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_request import RunRequest, body_hash, check_body, results_in
from cursor_gateway.runs.service import Service
from cursor_gateway.store.base import IdempotentRun

_LARGEST_KEPT = 4 * 1024 * 1024  # bytes of a request; the answer to a larger one cannot be looked up
_PROCESS_ENDED = (GatewayRestarted.code, RunnerLost.code, ShuttingDown.code)  # while the agent was at work


class Continued(Struct, frozen=True):
    """A run, and the number of the event after which the reply begins."""

    run: RunHandle
    after: int
    usage_before: Usage | None = None  # of the last model call before this reply
    key: str = ""  # identifies its request if it is repeated
    is_repeat: bool = False  # of an answer to a run; the reply to it is over


class Continuing:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def take(self, request: RunRequest) -> Continued:
        """The reply to a request, which may be repeated, contain results, or be new."""
        if request.workspace is None and request.workspace_if_allowed is not None:
            request = replace(request, workspace=self._service.workspaces.allowed(request.workspace_if_allowed))
        continued = await self._find_or_start(request)
        run = continued.run
        is_kept = not continued.after and run.begun is not None and run.begun.request == request.kept  # with the run
        if 0 < len(request.kept) <= _LARGEST_KEPT and not is_kept:
            with suppress(StoreUnavailable):  # costs the lookup, not the answer
                await self._service.store.keep_request(run.id, request.owner, continued.after, request.kept)
        return continued

    async def _find_or_start(self, request: RunRequest) -> Continued:
        results, also = results_in(request)
        key = await self._repeat_key(request, results)
        if request.clients_retry and request.idempotency_key is None:
            request = replace(request, question_key=key or request_key(request, self._service.defaults.mode))
        if key is not None and (known := await self._repeated(request, key)) is not None:
            return replace(known, key=key)
        if (asked := await self._service.still_asked(request)) is not None:
            return Continued(asked, 0, key=key or "")
        if (continued := await self._continue_run(request, results, also)) is not None:
            if key is not None:
                hashed = body_hash(request) if key == request.idempotency_key else ""
                reply = IdempotentRun(continued.run.id, hashed, continued.after)
                await self._service.note_reply(request.owner, key, reply)
            return replace(continued, key=key or "")
        if key is not None and key != request.idempotency_key:
            request = replace(request, repeat_key=key)
        return Continued(await self._service.start(request), 0, key=key or "")

    async def _continue_run(
        self, request: RunRequest, results: Mapping[str, ToolResult], also: Sequence[Message]
    ) -> Continued | None:
        """Continues the run that waits for these results. None: there is none, so the request starts a new run."""
        run = self._service.runs.find_by_calls(results, request.owner)
        if run is None or run.caller is None or run.is_ending:
            return None
        is_new = bool(run.caller.new(results))
        if also and not is_new:
            return None  # a run in the middle of its work takes no messages: another one gets the whole conversation
        continued = await continue_run(run, results, request.when_client_leaves, also, request.offer)
        if is_new:
            self._service.starter.quote(run, request, run.turn.workspace)
            self._service.ask_next(run, request)
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
        return request_key(request, self._service.defaults.mode)

    async def _made_one(self, call_ids: Iterable[str], owner: str) -> bool:
        """Whether a run of this owner's made one of these calls."""
        for run_id in {made_by for id in call_ids if (made_by := run_of(id)) is not None}:
            if self._service.runs.find(run_id, owner) is not None:
                return True
            with suppress(StoreUnavailable):
                if await self._service.store.run(run_id, owner) is not None:
                    return True
        return False

    async def _repeated(self, request: RunRequest, key: str) -> Continued | None:
        """The reply that this request got before, unless the client wants another one, or the run failed.

        A failure is returned again if a retry cannot help, and to clients that retry automatically also if the agent
        had started working: the same work must not be done twice. An agent with the caller's tools does no work but
        through them, so another one may continue if the gateway ended; calls that it had made are returned again.
        """
        is_asked_again = request.may_be_asked_again and self._service.deliveries.is_asked_again(request.owner, key)
        if request.attempt == "first" or is_asked_again:
            self._service.repeats.forget(request.owner, key)
            return None
        known = await self._service.repeats.find(request.owner, key)
        if known is None:
            return None
        is_named = key == request.idempotency_key
        if is_named:
            check_body(known.body_hash, request)
        try:
            run = await self._service.find(known.run_id, request.owner)
        except NotFound:  # deleted with its conversation
            self._service.repeats.forget(request.owner, key)
            return None
        if not await _waits_in_vain(run, known.after):
            is_void = await self._is_void(run, request, is_named=is_named)
            if is_void or (not is_named and request.attempt != "only" and await self._was_received(run, known.after)):
                self._service.repeats.forget(request.owner, key)
                return None
        return Continued(run, known.after, await usage_at(run, known.after))

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
            return failure.code == RunCancelled.code or (failure.retryable and not (await run.state()).has_output)
        return failure.is_transient or not is_named

    async def _was_received(self, run: RunHandle, after: int) -> bool:
        """Whether the client received this reply: it has sent results of its calls, or continued the conversation. Then
        it repeats the request on purpose, for example after a rewind, and not as a retry.
        """
        if (pause := (await run.state()).next_pause(after)) is not None:
            return run.count > pause.number
        with suppress(StoreUnavailable):
            store, owner = self._service.store, run.owner
            runs = await store.runs_of(run.info.conversation_id or "", owner)
            if not runs or runs[-1].id == run.id:
                return False
            repair = await store.find_run_by_idempotency(owner, repair_key(run.id))
            return repair is None or runs[-1].id != repair.run_id
        return False


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
