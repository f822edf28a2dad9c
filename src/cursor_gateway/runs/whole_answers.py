"""A run in; its whole answer so far, or its prompt, out."""

from contextlib import suppress

from msgspec.structs import replace

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.documents import ChatResponse, ClarificationDocument, Mode
from cursor_gateway.model.messages import AssistantMessage
from cursor_gateway.prompting.fingerprints import fingerprint
from cursor_gateway.prompting.replies import with_later_answers
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run_request import RunRequest, scope_of
from cursor_gateway.stages.run_state import RunState, Transcript
from cursor_gateway.store.base import Store


async def response_of(run: RunHandle) -> ChatResponse:
    """The whole answer, or what there is of it now."""
    state, transcript = RunState(), Transcript()
    await run.fold(state, transcript)
    return state.response(transcript.documents, run.info, run.prompt)


async def answered_response_of(store: Store, run: RunHandle) -> ChatResponse:
    """With the answers that people gave to its questions later: an agent that cannot wait continues without an answer,
    which is then a later message of the conversation."""
    response = await response_of(run)
    asked = (document.metadata for document in response.documents if isinstance(document, ClarificationDocument))
    if not any(metadata.state == "unanswered" for metadata in asked):
        return response
    messages = await store.messages(response.conversation_id, run.owner)
    own = max((place for place, message in enumerate(messages) if message.run_id == response.id), default=-1)
    later = [message.text for message in messages[own + 1 :] if message.role == "user"]
    return replace(response, documents=with_later_answers(response.documents, later))


async def prompt_of(store: Store, run: RunHandle) -> str:
    """The prompt of this run."""
    stored = await store.messages(run.info.conversation_id or "", run.owner)
    return "\n\n".join(message.text for message in stored if message.run_id == run.id and message.role == "user")


async def quote_answer(store: Store, request: RunRequest, run: RunHandle, answer: str, default_mode: Mode) -> None:
    """The caller was sent a text that differs from the run's; its next request will quote it."""
    if not request.has_full_history:
        return
    id = run.info.conversation_id or ""
    with suppress(StoreUnavailable):  # it costs the agent's memory, not the answer
        conversation = await store.conversation(id, request.owner)
        if conversation is not None:
            scope = scope_of(request, conversation.workspace, default_mode)
            quoted = fingerprint(scope, [*request.messages, AssistantMessage(answer)])
            await store.change_conversation(id, request.owner, fingerprint=quoted)
