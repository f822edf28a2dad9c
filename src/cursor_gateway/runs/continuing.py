"""A request that tells the whole conversation in; its reply out: the one it got before, the next of a run that waits
for its tool results, or the first of a new run."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import NotFound, StoreUnavailable
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import context_usage
from cursor_gateway.model.documents import Usage
from cursor_gateway.model.messages import Message
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.repeats import question_key, run_of
from cursor_gateway.runs.run_request import RunRequest, body_hash, check_body, results_in, scope_of
from cursor_gateway.runs.service import Service
from cursor_gateway.store.base import IdempotentRun


class Continued(Struct, frozen=True):
    """A run, and the number of the event after which the reply begins."""

    run: RunHandle
    after: int
    usage_before: Usage | None = None  # of the last model call before this reply


class Continuing:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def take(self, request: RunRequest) -> Continued:
        """The reply to a request that tells the whole conversation: it may come again, bring results, or be new."""
        results, also = results_in(request)
        key = await self._repeat_key(request, results)
        if key is not None and (known := await self._repeated(request, key)) is not None:
            return known
        if (continued := await self._continue_run(request, results, also)) is not None:
            if key is not None:
                hashed = body_hash(request) if key == request.idempotency_key else ""
                reply = IdempotentRun(continued.run.id, hashed, continued.after)
                await self._service.note_reply(request.owner, key, reply)
            return continued
        if key is not None and key != request.idempotency_key:
            request = replace(request, repeat_key=key)
        return Continued(await self._service.start(request), 0)

    async def _continue_run(
        self, request: RunRequest, results: Mapping[str, ToolResult], also: Sequence[Message]
    ) -> Continued | None:
        """With the run that waits for these results. None: there is none, so the request starts a run."""
        run = self._service.runs.find_by_calls(results, request.owner)
        if run is None or run.caller is None or run.is_ending:
            return None
        is_new = bool(run.caller.new(results))
        if also and not is_new:
            return None  # a run in the middle of its work takes no messages: another one gets the whole conversation
        continued = await continue_run(run, results, also, request.offer)
        if is_new:
            self._service.starter.quote(run, request)
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
        scope = scope_of(request, request.workspace or "", self._service.defaults.mode)
        more = (request.model or "", request.conversation_id or "", request.source or "", request.instructions)
        return question_key(scope, request.messages, request.offer, *more)

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
        """The reply that this request got before, unless its run failed.

        A failure is repeated only for an `Idempotency-Key`, and only if another try cannot help.
        """
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
        failure = run.done.failure if run.done is not None else None
        is_stopped = run.done is None and run.is_ending
        if is_stopped or (failure is not None and (failure.is_transient or not is_named)):
            self._service.repeats.forget(request.owner, key)
            return None
        return Continued(run, known.after, await _usage_at(run, known.after))


async def continue_run(
    run: RunHandle, results: Mapping[str, ToolResult], also: Sequence[Message] = (), offer: Offer | None = None
) -> Continued:
    """With results of calls that the run has made."""
    after = run.answer_calls(results, also, offer)
    return Continued(run, after, await _usage_at(run, after))


async def _usage_at(run: RunHandle, pause: int) -> Usage | None:
    """The tokens of the last model call before this pause."""
    paused = await run.pause(pause)
    return context_usage(paused) if paused is not None else None
