"""An order in; a run, started in its conversation's folder, out."""

from collections.abc import Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from cursor_gateway.core.documents import Mode
from cursor_gateway.core.fences import Fences
from cursor_gateway.core.images import Image, place_images
from cursor_gateway.core.prompt import Instructions, Message, debug_preamble, render
from cursor_gateway.core.run_info import Include, RunInfo
from cursor_gateway.errors import GatewayFault, unknown_model
from cursor_gateway.runs.conversations import Conversation, Conversations
from cursor_gateway.runs.registry import Runs
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.workspaces import Workspaces
from cursor_gateway.sources.base import Source, Turn

_LONGEST_MODEL = 200  # characters of a name; the agent's own have some 40


class Order(Struct, frozen=True, kw_only=True):
    """What somebody wants to have done."""

    owner: str
    request_id: str = ""
    messages: Sequence[Message]
    images: Sequence[Image] = ()
    model: str | None = None
    mode: Mode | None = None
    workspace: str | None = None
    conversation_id: str | None = None
    fences: Fences | None = None
    include: Set[Include] = frozenset()


class Defaults(Struct, frozen=True, kw_only=True):
    """For what an order leaves out."""

    model: str
    mode: Mode = "agent"
    fences: Fences = "split"


class Service:
    def __init__(
        self, source: Source, runs: Runs, conversations: Conversations, workspaces: Workspaces, defaults: Defaults
    ) -> None:
        self.source, self.runs, self.defaults = source, runs, defaults
        self.workspaces = workspaces
        self._conversations = conversations

    def start(self, order: Order) -> Run:
        """Raises a `RequestError` for what cannot be, `ModelUnavailable` for a model that is known to be none."""
        model = order.model or self.defaults.model
        _check_name(model)
        self.source.check_model(model)
        self.runs.check_free()
        try:
            conversation = self._conversation(order)
            try:
                return self._start(order, model, conversation)
            except BaseException:
                self._let_go(conversation)
                raise
        except OSError as error:
            raise GatewayFault(
                f"The gateway cannot write its files: {error.strerror}; see `cursor-gateway doctor`."
            ) from error

    def _conversation(self, order: Order) -> Conversation:
        if order.conversation_id is None:
            return self._conversations.new(order.owner, self.workspaces.find(order.workspace))
        workspace = None if order.workspace is None else self.workspaces.find(order.workspace)
        return self._conversations.resume(order.conversation_id, order.owner, workspace)

    def _start(self, order: Order, model: str, conversation: Conversation) -> Run:
        id = f"chat_{uuid4().hex}"
        mode = order.mode or self.defaults.mode
        prompt = _prompt(order, mode, conversation.folder / "images")
        conversation.run = self.runs.start(
            RunInfo(
                id=id,
                created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                mode=mode,
                model=model,
                conversation_id=conversation.id,
                fences=order.fences or self.defaults.fences,
                include=order.include,
            ),
            Turn(
                run_id=id,
                prompt=prompt,
                model=model,
                mode=mode,
                workspace=conversation.workspace,
                folder=str(conversation.folder),
                session_id=conversation.session_id,
            ),
            owner=order.owner,
            request_id=order.request_id,
            after=conversation.run,
            ended=lambda run: self._let_go(conversation, run),
        )
        return conversation.run

    def _let_go(self, conversation: Conversation, run: Run | None = None) -> None:
        if conversation.run is not run:  # the end of another one lets go
            return
        self._conversations.release(conversation)
        if conversation.session_id is None:  # the agent never got as far as a session
            self._conversations.remove(conversation)

    async def close(self, drain_seconds: float) -> None:
        await self.runs.close(drain_seconds)
        self._conversations.close()
        await self.source.close()


def _check_name(model: str) -> None:
    """No agent is started for what can be no model's name: it would be an option of its own, or no argument at all."""
    if len(model) > _LONGEST_MODEL or model.startswith("-") or not model.isprintable():
        raise unknown_model(model[:_LONGEST_MODEL], [])


def _prompt(order: Order, mode: Mode, folder: Path) -> str:
    preamble = [Instructions(debug_preamble())] if mode == "debug" else []
    if order.images:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = []
    for image in order.images:
        path = folder / image.name
        path.write_bytes(image.data)
        paths.append(str(path))
    return render([*preamble, *place_images(order.messages, order.images, paths)])
