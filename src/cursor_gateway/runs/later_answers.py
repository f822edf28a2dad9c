"""The agent's reply in; the same reply, with the answers that people gave to its questions later, out."""

import msgspec

from cursor_gateway.model.documents import ChatResponse, ClarificationDocument
from cursor_gateway.prompting.replies import with_later_answers
from cursor_gateway.store.base import Store


async def answered(store: Store, response: ChatResponse, owner: str) -> ChatResponse:
    """An agent that cannot wait continues without an answer; then the answer is a later message of the conversation."""
    asked = (document.metadata for document in response.documents if isinstance(document, ClarificationDocument))
    if not any(metadata.state == "unanswered" for metadata in asked):
        return response
    messages = await store.messages(response.conversation_id, owner)
    own = max((place for place, message in enumerate(messages) if message.run_id == response.id), default=-1)
    later = [message.text for message in messages[own + 1 :] if message.role == "user"]
    return msgspec.structs.replace(response, documents=with_later_answers(response.documents, later))
