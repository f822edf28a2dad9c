"""Runs at a gateway: start one, answer its questions, and follow those that continue it."""

from contextlib import AsyncExitStack

from cursor_gateway.cli.assembly.remote import Remote
from cursor_gateway.cli.output import Trouble, aside
from cursor_gateway.cli.presenting import Batches
from cursor_gateway.client.connection import ChatOptions
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.dialects.documents.request import AnswerRequest
from cursor_gateway.model.document_events import Done


class GatewayRuns:
    def __init__(self, remote: Remote) -> None:
        self._remote, self._client = remote, remote.client
        self.run_id = self.conversation_id = ""  # of the last that was started; known before its first event

    async def start(self, message: str, options: ChatOptions, *, is_folder_named: bool) -> Batches:
        """Stops the run if it is closed before the end. Raises `CallFailed`."""
        async with AsyncExitStack() as opened:
            try:
                stream = await opened.enter_async_context(self._client.stream(message, **options))
            except UnicodeEncodeError:
                raise Trouble("an option is not valid UTF-8; correct it.") from None
            except CallFailed as error:
                if is_folder_named or error.param != "workspace":
                    raise
                default = (self._remote.health and self._remote.health.workspace) or ""
                aside(
                    f"This gateway is not allowed to work in {options.get('workspace')}, so it uses its default folder"
                    f"{f', {default}' if default else ''}. Allow more with `workspace_roots`, or use --direct."
                )
                options["workspace"] = None
                stream = await opened.enter_async_context(self._client.stream(message, **options))
            self.run_id, self.conversation_id = stream.id, stream.conversation_id
            async for events in stream.batches():
                yield events

    async def answer(self, run_id: str, reply: AnswerRequest) -> str:
        return await self._client.answer(
            run_id, permissions=reply.permissions, answers=reply.answers, plan=reply.plan, text=reply.text
        )

    async def follow(self, run_id: str) -> Batches:
        """Stops the run if it is closed before the end."""
        self.run_id, is_over = run_id, False
        try:
            async with self._client.events(run_id) as stream:
                async for events in stream.batches():
                    is_over = isinstance(events[-1], Done)
                    yield events
        finally:
            if not is_over:
                await self._client.cancel(run_id)
