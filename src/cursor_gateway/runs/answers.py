"""Answers in; the run that waits for them and continues, or the conversation's next run, out."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.errors import ConversationBusy, InvalidRequest, NotFound, unwritable
from cursor_gateway.model.answers import (
    Permission,
    PermissionDecisions,
    PermissionEntry,
    PlanChoice,
    PlanDecision,
    QuestionAnswers,
    RunAnswer,
    SeveralAnswers,
    ToolResults,
)
from cursor_gateway.model.caller_tools import Offer, Tool, ToolResult
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationDocument,
    ClarificationMetadata,
    Document,
    Mode,
    PermissionRequest,
    PlanDocument,
    ToolTrace,
)
from cursor_gateway.model.messages import AssistantMessage, Message, UserMessage
from cursor_gateway.prompting.replies import (
    answers_message,
    permission_of,
    permissions_message,
    plan_message,
)
from cursor_gateway.runs.admission import find_run
from cursor_gateway.runs.conversations import TOOLS
from cursor_gateway.runs.handle import RunHandle, response_of
from cursor_gateway.runs.identify import continue_run
from cursor_gateway.runs.run_service import Asker, Continuation, Continued, RunRequest, stored_continuation
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.private_files import read_private
from cursor_gateway.store.base import IdempotentRun, Store
from cursor_gateway.workspace.permissions import Permissions


class _NextTurn(Struct, frozen=True):
    """Of the conversation of a run that has ended."""

    run: RunHandle
    text: str
    mode: Mode
    key: str  # the same answer again joins the turn
    allow: Sequence[str] = ()


_Taken: TypeAlias = Continued | _NextTurn
_Checked: TypeAlias = _Taken | Callable[[], Awaitable[_Taken]]  # what has an effect is called when all are checked


class Answers:
    def __init__(
        self, parts: RunParts, decisions: Permissions, start: Callable[[RunRequest], Awaitable[RunHandle]]
    ) -> None:
        """`start` is for answers that begin the conversation's next run."""
        self._runs, self._store, self._conversations = parts.runs, parts.store, parts.conversations
        self._decisions, self._start = decisions, start

    async def take(self, id: str, asker: Asker, given: RunAnswer) -> Continued:
        several = given.answers if isinstance(given, SeveralAnswers) else [given]
        checked = [await self._check(id, asker, one) for one in several]
        taken = [one if isinstance(one, Continued | _NextTurn) else await one() for one in checked]
        turns = [one for one in taken if isinstance(one, _NextTurn)]
        if turns:
            return await self._begin(asker, turns)
        continued = taken[-1]
        assert isinstance(continued, Continued)
        return continued

    async def _check(
        self, id: str, asker: Asker, given: ToolResults | QuestionAnswers | PlanDecision | PermissionDecisions
    ) -> _Checked:
        match given:
            case ToolResults(results=results):  # which never come with others
                return await self._with_results(id, asker, results)
            case QuestionAnswers(answers=answers):
                return await self._with_answers(id, asker, answers)
            case PlanDecision(decision=decision, text=text):
                return await self._with_decision(id, asker, decision, text)
            case PermissionDecisions(permissions=permissions):
                return await self._with_permissions(id, asker, permissions)

    async def _with_results(self, id: str, asker: Asker, results: Mapping[str, ToolResult]) -> Continued:
        """Results of the caller's tools. If the run is gone, a new one starts in its conversation."""
        if (live := self._runs.find(id, asker.owner)) is not None:
            if live.caller is not None and not live.is_ending:
                if not any(map(live.caller.knows, results)):
                    raise _no_such_call()
                return await continue_run(live, results, asker.when_client_leaves)
            await live.finished()
        run = await find_run(self._runs, self._store, id, asker.owner)
        if run.done is None:
            raise NotFound("This run belongs to another gateway; send the answer there.", param="id")
        state = await run.state()
        pause = state.pause_for(calls=results)
        if pause is None:
            raise _no_such_call()
        if not state.are_missing(results):  # it already had them all: reply with what followed
            return Continued(run, pause)
        messages = [*await self._said_before(run), *state.messages(results)]
        known = await self._continuation(run)
        request = msgspec.structs.replace(
            _run_request(run, asker, messages, Offer(tools=known.tools)),
            instructions=known.instructions,
            source=known.source,
            needs=known.needs,
            idempotency_key=_key_of(run.id, ToolResults(results), pause),
        )
        return Continued(await self._start(request), 0)

    async def _with_answers(self, id: str, asker: Asker, answers: Sequence[ClarificationAnswer]) -> _Checked:
        """To the agent's questions: a run that waits for them continues; else they are the conversation's next turn."""
        run = await find_run(self._runs, self._store, id, asker.owner)
        if any(answer.question_id in run.questions.permissions for answer in answers):
            return await self._with_permissions(id, asker, await self._permissions(run, answers))
        if (call := run.questions.call_for(answers)) is not None:
            return partial(_give, run, asker, {call: list(answers)})
        documents = await self._documents(run)
        if (pause := await _held(run, documents, ClarificationDocument)) is not None:
            return Continued(run, pause)
        key = _key_of(run.id, QuestionAnswers(answers))
        return _NextTurn(run, answers_message(documents, answers), run.info.mode, key)

    async def _with_decision(self, id: str, asker: Asker, decision: PlanChoice, text: str) -> _Checked:
        """On the agent's plan: a plan that is accepted is carried out, which the mode `plan` does not allow."""
        run = await find_run(self._runs, self._store, id, asker.owner)
        if (plan := run.questions.plan) is not None:
            if text:
                raise InvalidRequest(
                    "While the agent waits it accepts only a decision; omit `text`, and send it when the run has "
                    "ended.",
                    param="text",
                )
            return partial(_give, run, asker, {plan: decision == "accept"})
        documents = await self._documents(run)
        if (pause := await _held(run, documents, PlanDocument)) is not None:
            return Continued(run, pause)
        mode: Mode = "agent" if decision == "accept" else run.info.mode
        key = _key_of(run.id, PlanDecision(decision, text))
        return _NextTurn(run, plan_message(documents, decision, text), mode, key)

    async def _with_permissions(self, id: str, asker: Asker, decided: Mapping[str, Permission]) -> _Checked:
        """Decisions about calls that need permission, by document. A rejected call is tried again in the next turn."""
        run = await find_run(self._runs, self._store, id, asker.owner)
        self._decisions.check(list(decided.values()))
        documents = {document.id: document for document in (await response_of(run)).documents}
        requests = {id: _permission_request(documents, id, permission) for id, permission in decided.items()}
        questions = {id: _question_of(documents[id]) for id in decided}
        held = run.questions.permissions
        if any(id in held for id in questions.values()):
            for id in decided:
                if questions[id] not in held:
                    raise InvalidRequest(
                        f"The run does not wait for a decision about {id[:100]!r}; decide what it waits for first.",
                        param="permissions",
                    )
            rules = {id: one for id, one in decided.items() if one.decision in ("conversation", "workspace")}
            self._check_recorded(run, rules)
            answers = {questions[id]: permission for id, permission in decided.items()}
            return partial(self._decide_held, run, asker, answers, requests, rules)
        for id in decided:
            if (pause := await self._answered_in(run, documents[id])) is not None:  # this is another copy
                return Continued(run, pause)
        await self._documents(run)
        self._check_recorded(run, decided)
        return partial(self._decide_later, run, documents.values(), decided, requests)

    async def _decide_later(
        self,
        run: RunHandle,
        documents: Iterable[Document],
        decided: Mapping[str, Permission],
        requests: Mapping[str, PermissionRequest],
    ) -> _Taken:
        """For a run that has ended."""
        entries = [await self._record(run, id, requests[id], permission) for id, permission in decided.items()]
        if not any(permission.is_allowed or permission.reason for permission in decided.values()):
            await self._settle(run, documents)
            return Continued(run, 0)  # the agent continued without it, and needs no message
        text = permissions_message([(requests[id], permission) for id, permission in decided.items()])
        once = [rule for entry in entries if entry.decision == "once" for rule in entry.rules]
        key = f"{' '.join(entry.id for entry in entries)} to {run.id}"
        return _NextTurn(run, text, run.info.mode, key, once)

    async def _decide_held(
        self,
        run: RunHandle,
        asker: Asker,
        answers: Mapping[str, Permission],
        requests: Mapping[str, PermissionRequest],
        rules: Mapping[str, Permission],
    ) -> Continued:
        """For a run that waits: it continues. `answers` are by question, `rules` by document."""
        for id, permission in rules.items():
            await self._record(run, id, requests[id], permission)
        held = run.questions.permissions  # those that are not among them any more are left out
        return await _give(run, asker, {held[id]: permission for id, permission in answers.items() if id in held})

    async def _permissions(self, run: RunHandle, answers: Sequence[ClarificationAnswer]) -> dict[str, Permission]:
        """Answers to questions that ask for permission, by the documents of these questions."""
        documents = (await response_of(run)).documents
        by_question = {_question_of(document): document.id for document in documents}
        decided: dict[str, Permission] = {}
        for number, answer in enumerate(answers):
            if answer.question_id not in run.questions.permissions:
                param = f"answers[{number}].questionId"
                raise InvalidRequest(f"{param}: The run waits for a decision; answer that first.", param=param)
            decided[by_question[answer.question_id]] = permission_of(answer, number)
        return decided

    def _check_recorded(self, run: RunHandle, decided: Mapping[str, Permission]) -> None:
        """Raises `InvalidRequest` if any of it was decided differently before."""
        try:
            for id, permission in decided.items():
                self._decisions.known(run.owner, (run.id, id), permission)
        except OSError as error:
            raise unwritable(error) from error

    async def _record(
        self, run: RunHandle, id: str, request: PermissionRequest, permission: Permission
    ) -> PermissionEntry:
        place = await self._place(run)
        try:
            return self._decisions.record(run.owner, place, (run.id, id), request, permission)
        except OSError as error:
            raise unwritable(error) from error

    async def _settle(self, run: RunHandle, documents: Iterable[Document]) -> None:
        """When the last of the run's calls is decided, its conversation no longer waits for anybody."""
        try:
            entries = self._decisions.every(run.owner)
        except OSError as error:
            raise unwritable(error) from error
        decided = {entry.document_id for entry in entries if entry.chat_id == run.id}
        traces = {one.id: one.metadata for one in documents if isinstance(one.metadata, ToolTrace)}
        if not any(trace.needs_decision for id, trace in traces.items() if id not in decided):
            await self._store.set_decided(run.id, run.owner)

    async def _answered_in(self, run: RunHandle, document: Document) -> int | None:
        """The pause in which the run waited for this decision, if it had one."""
        if not isinstance(document, ClarificationDocument) or not document.metadata.answers:
            return None
        return (await run.state()).pause_for(document_id=document.id)

    async def _place(self, run: RunHandle) -> tuple[str, str]:
        """The run's workspace and conversation."""
        id = run.info.conversation_id or ""
        conversation = await self._store.conversation(id, run.owner)
        return (conversation.workspace if conversation is not None else "", id)

    async def _documents(self, run: RunHandle) -> list[Document]:
        if awaited := run.awaited:
            raise InvalidRequest(f"This run is waiting for something else: {awaited}.")
        if run.done is None:
            raise ConversationBusy("This run is not waiting for an answer; send it when the run has ended.")
        return (await response_of(run)).documents

    async def _begin(self, asker: Asker, turns: Sequence[_NextTurn]) -> Continued:
        """One turn for them all."""
        run = turns[0].run
        request = msgspec.structs.replace(
            _run_request(run, asker, [UserMessage("\n\n".join(turn.text for turn in turns))], None),
            mode=next((turn.mode for turn in turns if turn.mode != run.info.mode), run.info.mode),
            forgets_session=False,
            idempotency_key=" and ".join(turn.key for turn in turns),
            allow=[rule for turn in turns for rule in turn.allow],
        )
        return Continued(await self._start(request), 0)

    async def _said_before(self, run: RunHandle) -> list[Message]:
        """The conversation up to this run's request. What the run itself did is in its rounds."""
        stored = await self._store.messages(run.info.conversation_id or "", run.owner)
        last = max(
            (number for number, message in enumerate(stored, 1) if message.run_id == run.id), default=len(stored)
        )
        kept = [message for message in stored[:last] if message.run_id != run.id or message.role == "user"]
        return [
            UserMessage(message.text) if message.role == "user" else AssistantMessage(message.text) for message in kept
        ]

    async def _continuation(self, run: RunHandle) -> Continuation:
        if (found := await stored_continuation(self._store, run.id, run.owner)) is not None:
            return found
        # An older version kept the tools only in a file.
        path = self._conversations.folder(run.info.conversation_id or "") / TOOLS
        try:
            tools = msgspec.json.decode(read_private(self._conversations.data, path), type=list[Tool])
            return Continuation(tools=tools)
        except (OSError, msgspec.DecodeError):
            raise InvalidRequest(
                "The tools of this run are no longer stored; send a new message with `tools`.", param="id"
            ) from None


async def earlier_reply(store: Store, run: RunHandle, given: RunAnswer) -> IdempotentRun | None:
    """Where the reply is that the same answer got before; None: nobody has given it yet. The run has ended. Raises what
    the answer itself would."""

    async def replied(pause: int | None, key: str) -> IdempotentRun | None:
        if pause is not None:
            return IdempotentRun(run.id, "", pause)
        return await store.find_run_by_idempotency(run.owner, key)

    match given:
        case PermissionDecisions() | SeveralAnswers():  # which only the runner's machine knows
            return None
        case ToolResults(results=results):
            state = await run.state()
            pause = state.pause_for(calls=results)
            return await replied(None if state.are_missing(results) else pause, _key_of(run.id, given, pause))
        case QuestionAnswers(answers=answers):
            documents = (await response_of(run)).documents
            if (pause := await _held(run, documents, ClarificationDocument)) is None:
                answers_message(documents, answers)
            return await replied(pause, _key_of(run.id, given))
        case PlanDecision(decision=decision, text=text):
            documents = (await response_of(run)).documents
            if (pause := await _held(run, documents, PlanDocument)) is None:
                plan_message(documents, decision, text)
            return await replied(pause, _key_of(run.id, given))


def _key_of(run_id: str, given: ToolResults | QuestionAnswers | PlanDecision, pause: int | None = None) -> str:
    """The same answer again joins the turn that it has begun."""
    match given:
        case ToolResults():
            return f"results for {run_id} after {pause}"
        case QuestionAnswers():
            return f"answers to {run_id}"
        case PlanDecision():
            return f"decision to {run_id}"


async def _held(
    run: RunHandle, documents: Sequence[Document], kind: type[ClarificationDocument | PlanDocument]
) -> int | None:
    """The pause in which the run waited for such an answer, and got one: this is a repetition."""
    asked = next((document for document in reversed(documents) if isinstance(document, kind)), None)
    if asked is None or asked.metadata.state in ("interrupted", "unanswered"):
        return None
    return (await run.state()).pause_for(document_id=asked.id)


def _run_request(run: RunHandle, asker: Asker, messages: Sequence[Message], offer: Offer | None) -> RunRequest:
    return RunRequest(
        owner=asker.owner,
        request_id=asker.request_id,
        messages=messages,
        model=run.info.model,
        mode=run.info.mode,
        fences=run.info.fences,
        include=run.info.include,
        conversation_id=run.info.conversation_id,
        offer=offer,
        forgets_session=True,
        source=run.source,
        may_be_asked=True,
        when_client_leaves=asker.when_client_leaves,
        claim=asker.claim,
        trace=asker.trace,
    )


async def _give(run: RunHandle, asker: Asker, answers: Mapping[str, object]) -> Continued:
    """What the run waits for."""
    run.take_answers(answers)
    run.set_when_client_leaves(asker.when_client_leaves)
    return Continued(run, (await run.state()).paused_at)


def _question_of(document: Document) -> str:
    """The id of the question that a document asks for permission with; empty for any other document."""
    metadata = document.metadata
    if isinstance(metadata, ClarificationMetadata) and metadata.permission and metadata.questions:
        return metadata.questions[0].id
    return ""


def _permission_request(documents: Mapping[str, Document], id: str, permission: Permission) -> PermissionRequest:
    found = documents.get(id)
    if found is None:
        raise NotFound(f"This run has no document {id[:100]!r}; see GET /v1/chat/{{id}}.", param="permissions")
    if not isinstance(found.metadata, ToolTrace) or not found.metadata.permission:
        raise InvalidRequest(
            f"The document {id[:100]!r} does not need permission; choose one with `metadata.permission`.",
            param="permissions",
        )
    if not found.metadata.permission.rules and permission.decision in ("conversation", "workspace"):
        raise InvalidRequest("No rule can allow this from now on; choose `once` or `deny`.", param="permissions")
    return found.metadata.permission


def _no_such_call() -> NotFound:
    return NotFound(
        "The run is not waiting for any of these calls; see `metadata.waitingFor` of GET /v1/chat/{id}.",
        param="toolResults",
    )
