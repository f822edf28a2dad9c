"""The body of `POST /v1/chat` in; a checked request of the documents dialect out."""

from msgspec import Struct

from cursor_gateway.core.documents import Mode
from cursor_gateway.core.fences import Fences
from cursor_gateway.core.run_info import Include, WhenClientLeaves
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.wire.json_body import read_json


class ChatRequest(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One message to the agent."""

    message: str
    conversation_id: str | None = None  # to go on with a conversation
    model: str | None = None
    mode: Mode | None = None
    stream: bool = False
    include: list[Include] = []
    fences: Fences | None = None
    workspace: str | None = None
    images: list[str] = []  # data: URIs
    when_client_leaves: WhenClientLeaves | None = None


def read_chat_request(body: bytes) -> ChatRequest:
    """Raises `InvalidRequest`."""
    request = read_json(body, ChatRequest)
    if not request.message.strip():
        raise InvalidRequest("`message` is empty; say what the agent shall do.", param="message")
    if request.model == "":
        raise InvalidRequest("`model` is empty; name one of GET /v1/models, or leave it out.", param="model")
    return request
