"""The `RunService` of a process that runs its agents itself."""

import asyncio
from collections.abc import Collection, Sequence, Set

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import PermissionDecisions, PlanDecision, QuestionAnswers, RunAnswer, ToolResults
from cursor_gateway.model.documents import ChatResponse, Envelope
from cursor_gateway.model.permissions import PermissionEntry
from cursor_gateway.runs.answering import Answering, Asker
from cursor_gateway.runs.continuing import Continued, Continuing
from cursor_gateway.runs.figures import Figure
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.reverting import FileEdits, RevertedFile, fits, revert
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.runs.run_service import ServiceState
from cursor_gateway.runs.service import Removed, Service
from cursor_gateway.runs.starter import unwritable
from cursor_gateway.runs.workspace_files import find_files
from cursor_gateway.sources.base import Model
from cursor_gateway.store.base import ConversationRecord, RunRecord


class LocalRunService:
    def __init__(self, service: Service) -> None:
        self.service, self.store, self.defaults = service, service.store, service.defaults
        self._continuing, self._answering = Continuing(service), Answering(service)
        self._is_retired = False

    # --- starting, continuing and ending runs -------------------------------------------------------

    async def take(self, request: RunRequest) -> Continued:
        _check_needs(request)
        return await self._continuing.take(request)

    async def start(self, request: RunRequest) -> RunHandle:
        _check_needs(request)
        return await self.service.start(request)

    async def answer(self, id: str, asker: Asker, given: RunAnswer) -> Continued:
        match given:
            case ToolResults(results=results):
                return await self._answering.with_results(id, asker, results)
            case QuestionAnswers(answers=answers):
                return await self._answering.with_answers(id, asker, answers)
            case PlanDecision(decision=decision, text=text):
                return await self._answering.with_decision(id, asker, decision, text)
            case PermissionDecisions(permissions=permissions):
                return await self._answering.with_permissions(id, asker, permissions)

    def delivered(self, owner: str, key: str) -> None:
        self.service.deliveries.note(owner, key)

    async def answered(self, request: RunRequest, run: RunHandle, answer: str) -> None:
        if isinstance(run, Run):
            await self.service.answered(request, run, answer)

    async def cancel(self, id: str, owner: str) -> Envelope:
        return await self.service.cancel(id, owner)

    async def remove(self, conversation_id: str, owner: str) -> Removed:
        return await self.service.remove(conversation_id, owner)

    async def delete_answer(self, run_id: str, owner: str, after: int) -> bool:
        return await self.service.delete_answer(run_id, owner, after)

    # --- reading ------------------------------------------------------------------------------------

    async def find(self, id: str, owner: str) -> RunHandle:
        return await self.service.find(id, owner)

    async def response(self, id: str, owner: str) -> ChatResponse:
        return await self.service.response(id, owner)

    async def prompt_of(self, id: str, owner: str) -> str:
        return await self.service.prompt_of(id, owner)

    async def waiting_for_people(self, conversation_ids: Collection[str]) -> Set[str]:
        latest = {id: self.service.conversations.latest(id) for id in conversation_ids}
        return {id for id, run in latest.items() if run is not None and run.waiting.is_waiting and run.caller is None}

    def runner_of(self, run: RunRecord) -> str:
        return ""

    # --- the machine that agents work on ------------------------------------------------------------

    def state(self) -> ServiceState:
        return ServiceState(
            source=self.service.source.state(),
            sources=self.service.source.names,
            running=self.service.runs.running,
            limit=self.service.runs.limit,
            workspace=str(self.service.workspaces.default),
        )

    async def models(self) -> list[Model]:
        return await self.service.source.models()

    def check_model(self, model: str) -> None:
        self.service.source.check_model(model)

    async def files(self, workspace: str | None, query: str, limit: int) -> list[str]:
        folder = self.service.workspaces.find(workspace)
        return await asyncio.to_thread(find_files, folder, query, limit)

    async def folders(self, query: str, limit: int) -> list[str]:
        return await asyncio.to_thread(self.service.workspaces.folders, query, limit)

    async def revertible(self, conversation: ConversationRecord, files: Sequence[FileEdits]) -> Set[str]:
        folder = self.service.workspaces.allowed(conversation.workspace)
        if folder is None:
            return set()
        return {file.path for file in files if await asyncio.to_thread(fits, folder, file)}

    async def revert(self, conversation: ConversationRecord, files: Sequence[FileEdits]) -> list[RevertedFile]:
        return await asyncio.to_thread(revert, self.service.workspaces.find(conversation.workspace), files)

    async def permissions(self, owner: str) -> list[PermissionEntry]:
        try:
            return self.service.permissions.every(owner)
        except OSError as error:
            raise unwritable(error) from error

    async def revoke_permission(self, owner: str, id: str) -> bool:
        try:
            return self.service.permissions.revoke(owner, id)
        except OSError as error:
            raise unwritable(error) from error

    def figures(self) -> list[Figure]:
        return []

    # --- the end ------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        return "The gateway is shutting down." if self._is_retired else ""

    async def retire(self) -> None:
        self._is_retired = True

    async def drain(self, seconds: float) -> None:
        await self.service.runs.close(seconds)

    async def close(self) -> None:
        await self.service.close(0)


def _check_needs(request: RunRequest) -> None:
    """A runner that claimed the request already has the labels."""
    if request.needs and request.claim is None:
        raise InvalidRequest(
            "`needs` chooses a runner of a cluster, and this gateway is not part of one; omit it.", param="needs"
        )
