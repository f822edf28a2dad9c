"""A request in; what it means here out: its source, its model, its tools, and the conversation that it continues."""

from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from cursor_gateway.errors import AgentError, InvalidRequest, PreviousAnswerUnknown, unknown_model
from cursor_gateway.model.caller_tools import NamedTool, RequiredTool
from cursor_gateway.model.requests import INTERACTIVE
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.run_request import Defaults, RunRequest, asks_others, scope_of
from cursor_gateway.runs.starter import TOOLS
from cursor_gateway.runs.turn_builder import Conversation
from cursor_gateway.sources.base import Model, Turn
from cursor_gateway.sources.cursor.models import is_alias, resolve
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.store.base import Store
from cursor_gateway.workspace.roots import Workspaces

_LONGEST_MODEL = 200  # characters of a name; the agent's own have some 40


class RequestResolver:
    def __init__(
        self,
        source: SourceRouter,
        store: Store,
        conversations: Conversations,
        workspaces: Workspaces,
        defaults: Defaults,
    ) -> None:
        self._source, self._store, self._conversations = source, store, conversations
        self._workspaces, self._defaults = workspaces, defaults

    # --- the agent ----------------------------------------------------------------------------------

    async def with_source(self, request: RunRequest) -> RunRequest:
        """An interactive request goes to a source that can wait for answers, unless the default source has the
        conversation.
        """
        if request.source is None and asks_others(request, self._defaults):
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
            with suppress(AgentError):  # the run will report it
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
            raise InvalidRequest(
                "Tools cannot be used in mode `plan`; omit `tools`, or choose another mode.", param="tools"
            )
        if self._source.named(request.source).offers_tools:
            return request
        if isinstance(request.offer.choice, RequiredTool | NamedTool):
            raise InvalidRequest(
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
                raise InvalidRequest(
                    f"The workspace {found.workspace!r} no longer exists; restore it, or start a new conversation.",
                    param="conversationId",
                )
            return found
        workspace = self._workspaces.find(request.workspace)
        if not request.has_full_history:
            return self._conversations.new(workspace, request.messages)
        return await self._conversations.find_by_history(
            scope_of(request, workspace, self._defaults.mode), request.messages
        )

    async def _following(self, request: RunRequest, run_id: str) -> Conversation:
        """The conversation that the run is the latest of, or a copy of it up to that run."""
        followed = await self._store.run(run_id, request.owner)
        if followed is None:
            raise PreviousAnswerUnknown(
                "The previous answer is not stored here; send the whole conversation instead.",
                param="previous_response_id",
            )
        id, owner = followed.conversation_id, request.owner
        if (await self._store.runs_of(id, owner))[-1].id == run_id:
            return await self.conversation(replace(request, follows=None, conversation_id=id, has_full_history=False))
        conversation = await self._store.conversation(id, owner)
        known = await self._conversations.said_up_to(id, owner, run_id)
        workspace = request.workspace or (None if conversation is None else conversation.workspace)
        workspace = self._workspaces.find(workspace)
        return self._conversations.new(workspace, [*known, *request.messages])

    async def _conversation_of(self, id: str, owner: str) -> str:
        """For a run's id (`chat_…`), the conversation whose latest run it is; any other id names a conversation."""
        stored = await self._store.run(id, owner) if id.startswith("chat_") else None
        if stored is None:
            return id
        if (await self._store.runs_of(stored.conversation_id, owner))[-1].id != id:
            raise InvalidRequest(
                "This is not the latest answer; continue from that one, or start a new conversation.",
                param="conversationId",
            )
        return stored.conversation_id


def _check_name(model: str) -> None:
    """No agent is started for a string that cannot be a model name: it could become a command-line option, or an
    invalid argument.
    """
    if len(model) > _LONGEST_MODEL or model.startswith("-") or not model.isprintable():
        raise unknown_model(model[:_LONGEST_MODEL], [])
