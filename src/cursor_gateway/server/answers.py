"""Wait for the text of an answer, and check that it is the requested JSON, with one retry."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from cursor_gateway.dialects.base import Form, Whole
from cursor_gateway.dialects.deltas import Answer, AnswerFold, add_usage
from cursor_gateway.dialects.errors import OWN_ERRORS, Errors
from cursor_gateway.errors import AnswerUnfit, Failure, GatewayError, RunCancelled
from cursor_gateway.model.document_events import DocumentEvent, says_something
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.prompting.structured import Fit, Format, Misfit, check, repair_prompt
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.repeats import repair_key
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.streaming import Progress, Reading, read_to_end, stream_headers


class Answering(Protocol):
    async def answer(self, receive: Receive) -> Answer | Failure: ...


async def fold_run(run: RunHandle, fold: AnswerFold | Whole, receive: Receive, after: int, start: int) -> bool | None:
    """Waits for the answer after the event `start`. Returns whether the agent began to work; None: the client is gone.

    `after`: the number of the last event that the fold does not need.
    """
    has_begun = start > 0

    def push(event: DocumentEvent) -> Progress:
        nonlocal has_begun
        has_begun = has_begun or says_something(event)
        fold.push(event)
        if fold.is_cut:
            return Progress.TRUNCATED
        return Progress.COMPLETE if fold.is_over else Progress.MORE

    return has_begun if await read_to_end(run, receive, push, after) else None


class TextAnswer:
    """The answer of one run."""

    def __init__(self, run: RunHandle, fold: AnswerFold, after: int = 0) -> None:
        self.run, self.fold, self._after = run, fold, after

    async def answer(self, receive: Receive) -> Answer | Failure:
        has_begun = await fold_run(self.run, self.fold, receive, self._after, self._after)
        answer = self.fold.answer()
        if answer is None:  # the client has disconnected
            return RunCancelled("The client disconnected before the answer was complete; retry the request.").failure()
        if (failure := answer.end.failure) is None:
            return answer
        return failure.final() if has_begun else failure


class CheckedAnswer:
    """The answer of a run whose text must be JSON; if it is not, the agent gets the reason and one more try."""

    def __init__(self, first: TextAnswer, run_request: RunRequest, format: Format, service: RunService) -> None:
        self._first, self._run_request, self._format, self._service = first, run_request, format, service
        self._run = first.run  # or the one that repairs it

    async def answer(self, receive: Receive) -> Answer | Failure:
        first = await self._first.answer(receive)
        if isinstance(first, Failure):
            return first
        checked = self._checked(first)
        if isinstance(checked, Answer):
            return await self._noted(checked)
        second = await self._ask_again(checked, receive)
        if isinstance(second, Failure):
            return second
        match self._checked(second):
            case Answer() as answer:
                return _with_usage_of(first, await self._noted(answer))
            case Misfit(reason=reason):
                return AnswerUnfit(
                    f"The agent's answer does not match the requested format, even when asked again: {reason} "
                    "Rephrase the request, or change the format.",
                    param="response_format",
                ).failure()

    def _checked(self, answer: Answer) -> Answer | Misfit:
        # As OpenAI does: a truncated answer is not JSON, and a tool call is not an answer yet.
        if answer.end.reason != "stop":
            return answer
        match check(answer.text, self._format):
            case Fit(text=text):
                return replace(answer, text=text)
            case Misfit() as misfit:
                return misfit

    async def _noted(self, answer: Answer) -> Answer:
        """The caller's next request contains only this answer, so its session is found by it."""
        if answer.end.reason == "stop":
            await self._service.answered(self._run_request, self._run, answer.text)
        return answer

    async def _ask_again(self, misfit: Misfit, receive: Receive) -> Answer | Failure:
        """In the same conversation, so the agent sees its first answer."""
        run = self._first.run
        run_request = replace(
            self._run_request,
            messages=[UserMessage(repair_prompt(misfit, self._format))],
            images=(),
            has_full_history=False,
            conversation_id=run.info.conversation_id,
            # Clients that join the first run join its retry too.
            idempotency_key=repair_key(run.id),
            repeat_key="",
            body=run.id.encode(),
        )
        try:
            self._run = await self._service.start(run_request)
        except GatewayError as error:
            return error.failure()
        return await TextAnswer(self._run, self._first.fold.again()).answer(receive)


def _with_usage_of(first: Answer, second: Answer) -> Answer:
    """The second answer, with the usage of both runs."""
    if first.end.total is None or second.end.total is None:
        return second
    return replace(second, end=replace(second.end, total=add_usage(first.end.total, second.end.total)))


class LateStream:
    """The stream of an answer that must be complete before it is shown."""

    def __init__(
        self,
        answer: Answering,
        encode: Callable[[Answer | Failure], bytes],
        form: Form,
        headers: Callable[[], Mapping[str, str]],
        reading: Reading,
        errors: Errors = OWN_ERRORS,
        *,
        streams_failures: bool = False,
    ) -> None:
        """`headers` is called when the reply starts; before that, the backend is not known. `streams_failures`: a
        failure is part of the stream even if nothing has been sent."""
        self._answer, self._encode, self._form, self._headers = answer, encode, form, headers
        self._reading, self._errors, self._streams_failures = reading, errors, streams_failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.ensure_future(self._answer.answer(receive))
        try:
            await asyncio.wait([task], timeout=self._reading.hold_seconds)
            if task.done() and isinstance(failure := task.result(), Failure) and not self._streams_failures:
                await error_response(failure, self._headers(), errors=self._errors)(scope, receive, send)
                return
            headers = stream_headers(self._form, self._headers())
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not task.done():
                await send({"type": "http.response.body", "body": self._form.keep_alive, "more_body": True})
                await asyncio.wait([task], timeout=self._reading.keep_alive_seconds)
            data = self._encode(task.result())
            await send({"type": "http.response.body", "body": data, "more_body": False})
        finally:
            task.cancel()
