"""A run and the format of its answer in; the same run, with its events once the answer was checked, out."""

import asyncio
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from cursor_gateway.dialects.checked import Check, CheckedText
from cursor_gateway.errors import GatewayError
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.handle import Reader, RunHandle
from cursor_gateway.runs.repeats import repair_key
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.streaming import push_until


class CheckedRun(RunHandle):
    """If the answer does not have the format, another run of the conversation repairs it: the reader sees one reply."""

    def __init__(self, run: RunHandle, request: RunRequest, check: Check, service: RunService) -> None:
        super().__init__(run.info, run.owner, run.log)
        self._first = run
        self._run = run  # or the one that repairs its answer
        self._request, self._check, self._service = request, check, service
        self._done: Done | None = None

    @property
    def prompt(self) -> str:
        return self._first.prompt

    @property
    def source_name(self) -> str:
        return self._first.source_name

    @property
    def fallback(self) -> str | None:
        return self._first.fallback

    @property
    def done(self) -> Done | None:
        return self._done

    async def entered(self) -> None:
        await self._first.entered()

    def reader(self, after: int = 0) -> Reader:
        return _CheckedReader(self, after)

    def stop(self, why: GatewayError) -> None:
        self._run.stop(why)

    async def read(self, after: int, readers: ExitStack) -> list[DocumentEvent] | None:
        """All events of the reply after this number; None if the run was deleted meanwhile.

        `readers`: where the readers of the runs are added, so that a run is read until its reply was sent.
        """
        stage = CheckedText(self._check)
        events = await self._read(stage, readers.enter_context(self._run.reader(after)))
        if events is not None and stage.repair:
            try:
                self._run = await self._service.start(self._repair_request(stage.repair))
            except GatewayError as error:
                events = [stage.failed(error.failure())]
            else:
                self.log = self._run.log
                events = await self._read(stage, readers.enter_context(self._run.reader()))
        if stage.json is not None:  # the caller's next request contains only this, so its session is found by it
            await self._service.answered(self._request, self._run, stage.json)
        if events and isinstance(events[-1], Done):
            self._done = events[-1]
        return events

    async def _read(self, stage: CheckedText, reader: Reader) -> list[DocumentEvent] | None:
        """What the stage shows of one run; empty if the agent must be asked again."""
        shown: list[DocumentEvent] = []

        def push(event: DocumentEvent) -> bool:
            shown.extend(stage.push(event))
            return bool(shown)

        is_over = await push_until(reader, push)
        return None if reader.has_left and not is_over else shown

    def _repair_request(self, prompt: str) -> RunRequest:
        """In the same conversation, so the agent sees its first answer."""
        return replace(
            self._request,
            messages=[UserMessage(prompt)],
            images=(),
            has_full_history=False,
            conversation_id=self.info.conversation_id,
            # Clients that join the first run join its repair too.
            idempotency_key=repair_key(self.id),
            repeat_key="",
            body=self.id.encode(),
        )


class _CheckedReader(Reader):
    """Reads the run in a task, which ends with this reader."""

    def __init__(self, run: CheckedRun, after: int) -> None:
        super().__init__(run, after)
        self._checked = run
        self._has_all = False
        self._open = ExitStack()

    def __enter__(self) -> Reader:
        self._task = asyncio.get_running_loop().create_task(self._checked.read(self.place, self._open))
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()
        self._open.close()

    @property
    def at_end(self) -> bool:
        return self._has_all and self._checked.done is not None

    async def next(self, seconds: float | None = None) -> list[DocumentEvent]:
        if not self._task.done() and not self.has_left:
            self._woken = asyncio.get_running_loop().create_future()
            waited: list[asyncio.Future[Any]] = [self._task, self._woken]
            await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            self._woken = None
        if self._has_all or not self._task.done():
            return []
        self._has_all, events = True, self._task.result()
        if events is None:
            self.is_lost = self.has_left = True
        return events or []
