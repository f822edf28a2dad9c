"""A run in; its whole answer so far, or its prompt, out. Also hides answers from lookup."""

from msgspec import Struct

from cursor_gateway.errors import NotFound
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.stages.partial_run import PartialRun
from cursor_gateway.store.base import Store


class ForgottenAnswer(Struct, frozen=True):
    conversation_id: str
    is_only: bool  # nothing else is in the conversation


async def forget_answer(store: Store, run_id: str, owner: str, after: int) -> ForgottenAnswer | None:
    """None: there is none."""
    stored = await store.run(run_id, owner)
    if stored is None or not await store.forget_request(run_id, owner, after):
        return None
    return ForgottenAnswer(stored.conversation_id, len(await store.runs_of(stored.conversation_id, owner)) == 1)


async def response_of(run: RunHandle) -> ChatResponse:
    """The whole answer, or what there is of it now."""
    unfinished, reader, until = PartialRun(), run.reader(), run.count
    while reader.place < until and not reader.has_left:
        for event in await reader.next():
            unfinished.push(event)
    if reader.has_left:  # it was deleted meanwhile
        raise no_run(run.id)
    return unfinished.response(run.info, run.prompt)


async def prompt_of(store: Store, run: RunHandle) -> str:
    """The prompt of this run."""
    stored = await store.messages(run.info.conversation_id or "", run.owner)
    return "\n\n".join(message.text for message in stored if message.run_id == run.id and message.role == "user")


def no_run(id: str) -> NotFound:
    return NotFound(f"Unknown run {id[:100]!r}; see GET /v1/conversations.", param="id")
