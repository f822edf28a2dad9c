"""Mark text that the gateway writes because the agent wrote none, to recognize it when a client sends it back.

Conversations are found by what was said in them, so the history must contain the agent's own words only.
"""

from cursor_gateway.model.documents import ClarificationDocument, ClarificationQuestion, Document

# The second character is invisible: no agent writes it by chance.
MARK = "▸\u2063 "


def marked(text: str) -> str:
    return f"{MARK}{text}"


def is_marked(text: str) -> bool:
    return text.lstrip().startswith(MARK)


def without_marked(text: str) -> str:
    """The agent's own text: empty if this one is marked."""
    return "" if is_marked(text) else text


def question_of(document: Document) -> str:
    """What the agent asks the user, and nobody has answered; empty for anything else.

    A request for permission is not included: it cannot be granted by the next message.
    """
    match document:
        case ClarificationDocument(metadata=metadata) if not metadata.answers and not metadata.permission:
            return "\n\n".join(map(_question, metadata.questions))
        case _:
            return ""


def _question(question: ClarificationQuestion) -> str:
    return "\n".join([question.text, *(f"- {option.label}" for option in question.options)])
