"""A run in; a whole completion out: as it is, or checked to be the JSON that was asked for, with one repair."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import UnsetType
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from cursor_gateway.dialects.chat.encoder import (
    ChatCompletion,
    CompletionFold,
    CompletionUsage,
    CursorFields,
    PromptTokensDetails,
    completion_frames,
    error_frames,
)
from cursor_gateway.errors import AnswerUnfit, Failure, GatewayError, RunCancelled
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.prompting.structured import Fit, Format, Misfit, check, repair_prompt
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.runs.service import Service
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.streaming import SSE, Heard, Reading, read_to_end, stream_headers


class Answer(Protocol):
    async def completion(self, receive: Receive) -> ChatCompletion | Failure: ...


class WholeAnswer:
    """The completion of one run."""

    def __init__(self, run: RunHandle, fold: CompletionFold, after: int = 0) -> None:
        self.run, self.fold, self._after = run, fold, after

    async def completion(self, receive: Receive) -> ChatCompletion | Failure:
        await read_to_end(self.run, receive, self._hear, self._after)
        completion = self.fold.completion()
        if completion is None:  # the client has gone
            return RunCancelled("The client left before the answer was complete; ask again.").failure()
        return completion if self.fold.failure is None else self.fold.failure

    def _hear(self, event: DocumentEvent) -> Heard:
        self.fold.push(event)
        if self.fold.is_cut:
            return Heard.ALL
        return Heard.ENOUGH if self.fold.is_over else Heard.MORE


class CheckedAnswer:
    """The completion of a run whose text must be JSON; when it is not, the agent is told why, and asked again once."""

    def __init__(self, first: WholeAnswer, run_request: RunRequest, format: Format, service: Service) -> None:
        self._first, self._run_request, self._format, self._service = first, run_request, format, service
        self._run = first.run  # or the one that repairs it

    async def completion(self, receive: Receive) -> ChatCompletion | Failure:
        first = await self._first.completion(receive)
        if isinstance(first, Failure):
            return first
        checked = self._checked(first)
        if isinstance(checked, ChatCompletion):
            return await self._told(checked)
        second = await self._ask_again(checked, receive)
        if isinstance(second, Failure):
            return second
        match self._checked(second):
            case ChatCompletion() as completion:
                return replace(await self._told(completion), cursor=_sum(first.cursor, completion.cursor))
            case Misfit(reason=reason):
                return AnswerUnfit(
                    f"The agent's answer is not in the form that was asked for, also when asked again: {reason} "
                    "Ask in another way, or allow another form.",
                    param="response_format",
                ).failure()

    def _checked(self, completion: ChatCompletion) -> ChatCompletion | Misfit:
        (choice,) = completion.choices
        if choice.finish_reason != "stop":  # as with OpenAI: what was cut off is not JSON, and a call is no answer yet
            return completion
        match check(choice.message.content or "", self._format):
            case Fit(text=text):
                message = replace(choice.message, content=text)
                return replace(completion, choices=[replace(choice, message=message)])
            case Misfit() as misfit:
                return misfit

    async def _told(self, completion: ChatCompletion) -> ChatCompletion:
        """The caller's next request quotes this alone, so by this its session is found."""
        (choice,) = completion.choices
        if isinstance(self._run, Run) and choice.finish_reason == "stop":
            await self._service.answered(self._run_request, self._run, choice.message.content or "")
        return completion

    async def _ask_again(self, misfit: Misfit, receive: Receive) -> ChatCompletion | Failure:
        """In the same conversation, so the agent has its first answer before it."""
        run = self._first.run
        run_request = replace(
            self._run_request,
            messages=[UserMessage(repair_prompt(misfit, self._format))],
            images=(),
            has_full_history=False,
            conversation_id=run.info.conversation_id,
            # Who joins the first run joins its repair.
            idempotency_key=f"repair of {run.id}",
            repeat_key="",
            body=run.id.encode(),
        )
        try:
            self._run = await self._service.start(run_request)
        except GatewayError as error:
            return error.failure()
        return await WholeAnswer(self._run, self._first.fold.again()).completion(receive)


def _sum(first: CursorFields | UnsetType, second: CursorFields | UnsetType) -> CursorFields | UnsetType:
    """What two runs took."""
    return CursorFields(usage=_added(first.usage, second.usage)) if first and second else second


def _added(first: CompletionUsage, second: CompletionUsage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        completion_tokens=first.completion_tokens + second.completion_tokens,
        total_tokens=first.total_tokens + second.total_tokens,
        prompt_tokens_details=PromptTokensDetails(
            first.prompt_tokens_details.cached_tokens + second.prompt_tokens_details.cached_tokens
        ),
        estimated=first.estimated or second.estimated,
    )


class LateStream:
    """An answer that cannot be shown before it is whole, as a stream all the same."""

    def __init__(
        self, answer: Answer, headers: Callable[[], Mapping[str, str]], reading: Reading, *, include_usage: bool
    ) -> None:
        """`headers` are asked for when the reply begins: not before is it known what answers."""
        self._answer, self._headers, self._reading, self._include_usage = answer, headers, reading, include_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.ensure_future(self._answer.completion(receive))
        try:
            await asyncio.wait([task], timeout=self._reading.hold_seconds)
            if task.done() and isinstance(failure := task.result(), Failure):
                await error_response(failure, self._headers())(scope, receive, send)
                return
            headers = stream_headers(SSE, self._headers())
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not task.done():
                await send({"type": "http.response.body", "body": SSE.keep_alive, "more_body": True})
                await asyncio.wait([task], timeout=self._reading.keep_alive_seconds)
            told = task.result()
            data = error_frames(told) if isinstance(told, Failure) else completion_frames(told, self._include_usage)
            await send({"type": "http.response.body", "body": data, "more_body": False})
        finally:
            task.cancel()
