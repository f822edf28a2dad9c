"""Hold back the events of an answer until its text is known to have the requested format; then show them.

If the text does not have it, the agent is asked once more: `repair` is the prompt, and the events of the run that
answers it are pushed next. The text that is shown is the JSON alone, in one piece, before the last event. As with
OpenAI, an answer that is cut off is not checked, and neither is one that pauses for the caller's tools.
"""

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.dialects.deltas import add_usage
from cursor_gateway.errors import AnswerUnfit, Failure
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Paused,
    is_tool,
    reply_usage,
    says_something,
    source_text,
)
from cursor_gateway.model.documents import TextDocument, TextMetadata
from cursor_gateway.prompting.structured import Fit, Format, Misfit, check, repair_prompt
from cursor_gateway.stages.cutting import Cutter

_TEXT_ID = "answer"  # of the document that contains the whole text


class Check(Struct, frozen=True):
    """The format that an answer must have, and what cuts it off before."""

    format: Format
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    param: str = "response_format"  # the field of the request that asks for it


class CheckedText:
    """The events of one reply."""

    def __init__(self, check: Check) -> None:
        self.repair = ""  # what the agent must be asked next
        self.json: str | None = None  # the text, once it has the format
        self._check = check
        self._first: Done | None = None  # the end of an answer that did not have the format
        self._begin()

    def _begin(self) -> None:
        self._held: list[DocumentEvent] = []
        self._texts: list[str] = []
        self._last = 0  # index in `_texts` of the first after the agent's last action
        self._written: set[str] = set()  # the ids of documents that are the agent's text
        self._cutter = Cutter(self._check.stop, self._check.max_tokens)

    def push(self, event: DocumentEvent) -> list[DocumentEvent]:
        if text := source_text(event):
            self._texts.append(text)
            self._cutter.push(text)
        match event:
            case Done():
                return self._end(event)
            case DocumentStarted() if is_tool(event):
                self._last = len(self._texts)
                self._hold(event)
            case Paused(goes_on=False):
                return [*self._shown("".join(self._texts)), replace(event, raw="")]
            case _:
                self._hold(event)
        return self._shown("".join(self._texts)) if self._cutter.reason is not None else []

    def failed(self, failure: Failure) -> Done:
        """The end of a reply whose repair could not start."""
        assert self._first is not None
        return replace(self._first, failure=failure, raw="")

    def _hold(self, event: DocumentEvent) -> None:
        match event:
            case DocumentStarted(id=id, type="text" | "code_block" | "code_reference"):
                self._written.add(id)
            case ContentDelta(id=id) if id in self._written:
                pass
            case DocumentEnded(document=document) if document.id in self._written:
                pass
            case DocumentStarted() | DocumentEnded() | ContentDelta() | Paused():
                self._held.append(replace(event, raw=""))
            case _:
                self._held.append(event)

    def _end(self, done: Done) -> list[DocumentEvent]:
        if done.failure is not None:
            has_begun = bool(self._written) or any(map(says_something, self._held))
            return [replace(done, failure=done.failure.final() if has_begun else done.failure, raw="")]
        match check("".join(self._texts), self._check.format, "".join(self._texts[self._last :])):
            case Fit(text=text):
                self.json = text
                return [*self._shown(text), self._with_usage_of_both(done)]
            case Misfit() as misfit if self._first is None:
                self._first, self.repair = done, repair_prompt(misfit, self._check.format)
                self._begin()
                return []
            case Misfit(reason=reason):
                unfit = AnswerUnfit(
                    f"The agent's answer does not match the requested format, even when asked again: {reason} "
                    "Rephrase the request, or change the format.",
                    param=self._check.param,
                )
                return [replace(done, failure=unfit.failure(), raw="")]

    def _shown(self, text: str) -> list[DocumentEvent]:
        if not text:
            return self._held
        document = TextDocument(id=_TEXT_ID, sequence=0, content=text, metadata=TextMetadata())
        written: list[DocumentEvent] = [
            DocumentStarted(_TEXT_ID, "text", 0),
            ContentDelta(_TEXT_ID, text),
            DocumentEnded(document),
        ]
        return [*self._held, *written]

    def _with_usage_of_both(self, done: Done) -> Done:
        if self._first is None:
            return replace(done, raw="")
        usage = add_usage(self._first.envelope.usage, done.envelope.usage)
        return replace(done, envelope=replace(done.envelope, usage=usage), last_call=reply_usage(done), raw="")
