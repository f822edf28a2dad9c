"""The events of a run in; what it asks a person out: while it waits, or after the agent continued without an answer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from cursor_gateway.model import documents
from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, DocumentStarted, Done


class PermissionAsked(Struct, frozen=True):
    document_id: str
    request: documents.PermissionRequest
    is_past: bool = False  # the agent continued without it


class PlanAsked(Struct, frozen=True):
    document_id: str
    title: str
    text: str
    is_past: bool = False


class QuestionsAsked(Struct, frozen=True):
    document_id: str
    questions: Sequence[documents.ClarificationQuestion]
    is_past: bool = False


RunQuestion: TypeAlias = PermissionAsked | PlanAsked | QuestionsAsked


class RunQuestions:
    """Follows a run, so that it knows what a pause is about."""

    def __init__(self) -> None:
        self._open: dict[str, DocumentStarted] = {}
        self._texts: dict[str, str] = {}  # of open plans
        self._ended: list[documents.Document] = []

    def push(self, event: DocumentEvent, /) -> None:
        match event:
            case DocumentStarted(id=id, type="clarification" | "plan"):
                self._open[id] = event
            case ContentDelta(id=id, text=text) if id in self._open:
                self._texts[id] = self._texts.get(id, "") + text
            case DocumentEnded(document=document):
                self._open.pop(document.id, None)
                self._ended.append(document)
            case _:
                pass

    def waiting(self, calls: Iterable[documents.WaitingCall]) -> Iterator[RunQuestion]:
        """What these calls of a paused run ask."""
        for call in calls:
            started = self._open.get(call.document_id)
            if started is None or started.metadata is None:
                continue
            known = started.metadata
            if started.type == "plan":
                yield PlanAsked(started.id, known.title or "", self._texts.get(started.id, ""))
            elif known.permission:
                yield PermissionAsked(started.id, known.permission)
            else:
                yield QuestionsAsked(started.id, known.questions or [])

    def rejected(self) -> list[PermissionAsked]:
        """Commands and tools that were not allowed; each only once."""
        found: dict[str, PermissionAsked] = {}
        for document in self._ended:
            trace = document.metadata
            if isinstance(trace, documents.ToolTrace) and trace.needs_decision and trace.permission:
                found[trace.permission.subject] = PermissionAsked(document.id, trace.permission, is_past=True)
        return list(found.values())

    def unanswered(self) -> Iterator[QuestionsAsked]:
        for document in self._ended:
            if isinstance(document, documents.ClarificationDocument):
                known = document.metadata
                if known.state == "unanswered" and not known.permission:
                    yield QuestionsAsked(document.id, known.questions, is_past=True)

    def left(self, done: Done) -> list[RunQuestion]:
        """What the agent continued without, and nobody has decided."""
        if done.failure is not None:
            return []
        if rejected := self.rejected():
            return [*rejected]
        found: list[RunQuestion] = [*self.unanswered()]
        if done.envelope.mode == "plan" and (plan := self._proposed_plan()):
            found.append(plan)
        order = [document.id for document in self._ended]
        found.sort(key=lambda one: order.index(one.document_id))
        return found[:1]  # each answer starts another run

    def _proposed_plan(self) -> PlanAsked | None:
        """The last one counts."""
        plans = [one for one in self._ended if isinstance(one, documents.PlanDocument) and not one.metadata.accepted]
        if not plans or plans[-1].metadata.accepted is False or plans[-1].metadata.state == "rejected":
            return None
        return PlanAsked(plans[-1].id, plans[-1].metadata.title, plans[-1].content, is_past=True)
