"""The events of a run that has ended in; which calls of its caller's tools it made, round by round, out.

When a gateway was killed, the events are all that is left of its runs; with them, a late result still finds its
conversation.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.document_events import DocumentEnded, DocumentEvent, Paused, source_text
from cursor_gateway.model.documents import ToolCallDocument, ToolCallMetadata
from cursor_gateway.model.messages import AssistantMessage, Call, Message, ToolMessage


class _Round(Struct):
    pause: int  # its number
    text: str  # that was said before
    call_ids: list[str]


class Rounds:
    def __init__(self, events: Iterable[DocumentEvent]) -> None:
        self._rounds: list[_Round] = []
        self._calls: dict[str, ToolCallMetadata] = {}
        said: list[str] = []
        for number, event in enumerate(events, 1):
            said.append(source_text(event))
            match event:
                case Paused(envelope=envelope):
                    ids = [call.tool_call_id for call in envelope.metadata.waiting_for or ()]
                    self._rounds.append(_Round(number, "".join(said), ids))
                    said = []
                case DocumentEnded(document=ToolCallDocument(metadata=metadata)) if metadata.ran_by == "caller":
                    self._calls[metadata.tool_call_id] = metadata
                case _:
                    pass

    def pause_before(self, results: Mapping[str, ToolResult]) -> int | None:
        """The number of the last pause that waited for one of these. None: there was none."""
        waited = [one.pause for one in self._rounds if any(id in results for id in one.call_ids)]
        return max(waited, default=None)

    def are_missing(self, results: Mapping[str, ToolResult]) -> bool:
        """One of these was never given to the agent."""
        return any(id in results and metadata.state == "interrupted" for id, metadata in self._calls.items())

    def messages(self, results: Mapping[str, ToolResult]) -> list[Message]:
        """The texts, the calls and their results, whether they arrived then or now."""
        messages: list[Message] = []
        seen: set[str] = set()
        for one in self._rounds:
            fresh = [id for id in one.call_ids if id in self._calls and id not in seen]
            seen.update(fresh)
            calls = [_call(self._calls[id]) for id in fresh]
            if one.text or calls:
                messages.append(AssistantMessage(one.text, tuple(calls)))
            messages += [ToolMessage(self._given(id, results), id, self._calls[id].tool_name) for id in fresh]
        return messages

    def _given(self, id: str, results: Mapping[str, ToolResult]) -> str:
        metadata = self._calls[id]
        if metadata.state == "interrupted":
            return results[id].text if id in results else "There is no result: the run was broken off."
        data = metadata.result.data
        return data if isinstance(data, str) else msgspec.json.encode(data).decode()


def _call(metadata: ToolCallMetadata) -> Call:
    return Call(metadata.tool_call_id, metadata.tool_name, msgspec.json.encode(metadata.arguments).decode())
