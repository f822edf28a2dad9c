"""The APIs that a gateway speaks."""

from time import time

from cursor_gateway.dialects.base import Dialect
from cursor_gateway.dialects.chat.dialect import chat_dialect
from cursor_gateway.dialects.documents.dialect import documents_dialect
from cursor_gateway.dialects.messages.dialect import messages_dialect
from cursor_gateway.dialects.responses.dialect import responses_dialect
from cursor_gateway.settings import Settings


def dialects_of(settings: Settings) -> list[Dialect]:
    """The first is the default of `?dialect=`."""
    return [
        documents_dialect(settings.max_images),
        chat_dialect(settings.max_images, settings.agent_tools, settings.text),
        responses_dialect(settings.max_images, time, settings.text),
        messages_dialect(settings.max_images, settings.messages_actions, settings.text),
    ]
