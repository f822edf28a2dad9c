"""What the requests of user interfaces share: options, the page's tools, and answers that they quote, as messages."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.dialects.requests import convert_field, invalid, option_hints, with_headers
from cursor_gateway.model.answers import (
    Decision,
    Permission,
    PermissionDecisions,
    PlanDecision,
    QuestionAnswers,
    RunAnswer,
    SeveralAnswers,
)
from cursor_gateway.model.caller_tools import Offer, Tool, make_tool
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.model.messages import AssistantMessage, Message, ToolCall, ToolMessage
from cursor_gateway.model.requests import INTERACTIVE, NonEmpty, RunOptions, run_options

# --- options ----------------------------------------------------------------------------------------


class UiOptions(RunOptions, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Gateway options."""

    may_ask: Annotated[
        bool | None,
        "Whether the page shows the agent's questions and requests for permission, and sends the answers. If true, an "
        "agent that can wait is preferred. The default is false.",
    ] = None


def options_of(options: UiOptions | None, headers: Mapping[str, str]) -> dict[str, Any]:
    """As arguments of a `StartRun`."""
    options = with_headers(options or UiOptions(), headers)
    if options.may_ask and options.source is None:
        options = replace(options, source=INTERACTIVE)
    return {**run_options(options), "may_be_asked": bool(options.may_ask)}


OPTION_HINTS = option_hints(UiOptions)


# --- tools ------------------------------------------------------------------------------------------


class PageTool(Struct, frozen=True, kw_only=True):
    """A tool that the page runs."""

    name: Annotated[NonEmpty, "The tool's name."]
    description: Annotated[str | None, "What it does, for the model."] = None
    parameters: Annotated[
        dict[str, Any] | None,
        "The JSON Schema of its arguments, which must be an object. Arguments are checked against it.",
    ] = None


def offer_of(tools: Sequence[PageTool]) -> Offer | None:
    """Raises `InvalidRequest`."""
    offered: dict[str, Tool] = {}
    for number, tool in enumerate(tools):
        param = f"tools[{number}]"
        if tool.name in offered:
            raise invalid(param, "Two tools have this name; rename one.")
        offered[tool.name] = make_tool(tool.name, tool.description, tool.parameters, param)
    return Offer(tools=tuple(offered.values())) if offered else None


# --- the conversation -------------------------------------------------------------------------------


_RUN = re.compile(r"chat_[0-9a-f]+")


def run_in(id: str) -> str | None:
    """The run that a message or a part with this id came from; None: it is not one of ours."""
    found = _RUN.match(id)
    return found.group() if found else None


class QuotedMessages:
    """A conversation as it is read, part by part. Texts of one answer are joined, whatever the agent did in between;
    the results of calls that were made together follow them all."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._results: list[ToolMessage] = []

    def add(self, message: Message) -> None:
        self._messages += [*self._results, message]
        self._results = []

    @property
    def next(self) -> int:
        """The number of the message that is added next."""
        return len(self._messages) + len(self._results)

    def say(self, text: str) -> None:
        """The agent did."""
        match self._messages[-1:]:
            case [AssistantMessage(text=before, calls=()) as last] if not self._results:
                self._messages[-1] = replace(last, text=before + text)
            case _:
                self.add(AssistantMessage(text))

    def call(self, call: ToolCall) -> None:
        match self._messages[-1:]:
            case [AssistantMessage(calls=calls) as last]:
                self._messages[-1] = replace(last, calls=(*calls, call))
            case _:
                self.add(AssistantMessage("", (call,)))

    def result(self, result: ToolMessage) -> None:
        self._results.append(result)

    def all(self) -> list[Message]:
        return [*self._messages, *self._results]


# --- answers ----------------------------------------------------------------------------------------


UNANSWERED = "A question needs an answer; send one, for example with a `text`."
# Else the agent would be asked the last question again.
NOTHING_NEW = "There is nothing new for the agent; add a message, a tool's result, or the answer to what the run asked."


class UiAnswer(Struct, frozen=True):
    """What the page answers a run that waits."""

    run_id: str
    given: RunAnswer


class Approval(Struct, frozen=True, kw_only=True):
    """A decision on a command or a plan."""

    approved: bool
    reason: str = ""
    decision: Decision | None = None  # instead of `once`


class _Answer(Struct, frozen=True, kw_only=True, rename="camel"):
    question_id: str
    selected_option_ids: list[str] = []
    text: str = ""


class _Answers(Struct, frozen=True):
    answers: Annotated[list[_Answer], msgspec.Meta(min_length=1)]


def all_answers(permissions: Mapping[str, Permission], asked: Sequence[QuestionAnswers | PlanDecision]) -> RunAnswer:
    """Of one message."""
    given = [*([PermissionDecisions(permissions)] if permissions else ()), *asked]
    return given[0] if len(given) == 1 else SeveralAnswers(given)


def permission_of(approval: Approval) -> Permission:
    if not approval.approved:
        return Permission("deny", approval.reason)
    return Permission(approval.decision or "once")


def question_answers(value: object, param: str) -> QuestionAnswers:
    """Raises `InvalidRequest`."""
    given = convert_field(value, _Answers, param, "Send {answers: [{questionId, selectedOptionIds, text}]}.")
    return QuestionAnswers(
        [
            ClarificationAnswer(
                question_id=answer.question_id,
                selected_option_ids=answer.selected_option_ids,
                text=answer.text or msgspec.UNSET,
            )
            for answer in given.answers
        ]
    )
