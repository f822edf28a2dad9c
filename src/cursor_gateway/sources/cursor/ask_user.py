"""The gateway's own tool for questions: what the agent may ask with it, and what it reads as the answer.

Cursor's agent has such a tool, but offers it neither over ACP nor in runs of the SDK, and the CLI answers it itself. So
the gateway brings one. A call becomes a question in the form of the agent's own, and is shown and answered like it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from cursor_gateway.model.agent_events import Question
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.prompting.replies import answers_text
from cursor_gateway.wire.payload import Fields

MOST_QUESTIONS = 10
MOST_OPTIONS = 50

_TEXT = {"type": "string"}
_QUESTION = {
    "type": "object",
    "properties": {
        "question": {**_TEXT, "description": "The question, in Markdown."},
        "options": {
            "type": "array",
            "items": _TEXT,
            "maxItems": MOST_OPTIONS,
            "description": "Answers to choose from, if there are any. The user can always write another one.",
        },
        "multiple": {"type": "boolean", "description": "Whether the user may choose several options."},
    },
    "required": ["question"],
}
ASK_USER = Tool(
    "ask_user",
    "Asks the user one or several questions, and waits for the answers. Use it when you need a decision or information "
    "that you cannot find yourself, instead of guessing or of ending your turn with a question.",
    {
        "type": "object",
        "properties": {
            "title": {**_TEXT, "description": "What the questions are about, in a few words."},
            "questions": {"type": "array", "items": _QUESTION, "minItems": 1, "maxItems": MOST_QUESTIONS},
        },
        "required": ["questions"],
    },
)
SKIPPED = "Questions skipped by the user, continue with the information you already have"  # the CLI's words
NOBODY = ToolResult(
    text="The user cannot be asked now, or did not answer. Continue with what you know, and say what you assumed."
)
INVALID = ToolResult(
    text='Nothing was asked: send {"questions": [{"question": "…", "options": ["…"]}]}.', is_error=True
)


def question_arguments(arguments: Mapping[str, Any], call_id: str) -> dict[str, Any] | None:
    """In the form of the agent's own tool for questions. None: there is no question in them.

    Models do not always follow the schema: a single question without the list, a list of texts, and options with more
    than a label, are understood, too. The questions' ids begin with `call_id`, so that they are unique in the run.
    """
    given = Fields(dict(arguments))
    listed = [{"question": one} if isinstance(one, str) else one for one in given.items("questions")]
    asked = [Fields(one) for one in listed if isinstance(one, dict)] or [given]
    questions = [
        {
            "id": f"{call_id}_{number}",
            "prompt": text,
            "options": [{"id": str(place), "label": label} for place, label in enumerate(_labels(question), 1)],
            "allowMultiple": question.flag("multiple") or question.flag("allowMultiple"),
        }
        for number, question in enumerate(asked[:MOST_QUESTIONS], 1)
        if (text := question.text("question", "prompt", "text"))
    ]
    return {"title": given.text("title"), "questions": questions} if questions else None


def _labels(question: Fields) -> list[str]:
    options = question.items("options")[:MOST_OPTIONS]
    labels = [option if isinstance(option, str) else Fields(option).text("label", "text", "id") for option in options]
    return list(dict.fromkeys(filter(None, labels)))


class UserTool:
    """The tool of one session of an agent, for an MCP server with a name that no other server has.

    Calls of this server are allowed without asking, so a workspace's own server must not be able to take its name.
    Where permission does not depend on the server, no other tool has the `name`.
    """

    def __init__(self, server: str, name: str = ASK_USER.name) -> None:
        self.server, self.name = server, name
        self.tools = (replace(ASK_USER, name=name),)
        self.ask: Callable[[dict[str, Any]], Awaitable[ToolResult]] | None = None  # None: nobody can be asked now

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return NOBODY if self.ask is None or name != self.name else await self.ask(arguments)

    def is_called_by(self, server: str) -> bool:
        """Agents may put a word before the name of a server."""
        return server == self.server or server.endswith(f"-{self.server}")


def answer_result(question: Question, answers: Sequence[ClarificationAnswer] | None) -> ToolResult:
    return NOBODY if answers is None else ToolResult(text=answers_text(question.questions, answers))


def encoded_result(answers: Sequence[ClarificationAnswer] | None) -> dict[str, Any]:
    """The result in the form of the agent's own tool for questions."""
    if answers is None:
        return {"rejected": {"reason": SKIPPED}}
    return {"success": {"answers": [encoded_answer(answer) for answer in answers]}}


def encoded_answer(answer: ClarificationAnswer) -> dict[str, Any]:
    encoded: dict[str, Any] = {"questionId": answer.question_id, "selectedOptionIds": answer.selected_option_ids}
    return encoded if answer.text is UNSET else {**encoded, "freeText": answer.text}
