"""Mark text that the gateway adds to the agent's, or writes in its place, to recognize it when a client sends it back.

Conversations are found by what was said in them, so the history must contain the agent's own words only.
"""

from collections.abc import Sequence

from cursor_gateway.model.documents import ClarificationDocument, ClarificationQuestion, Document, RefusedCall

# The second character is invisible: no agent writes it by chance.
MARK = "▸\u2063 "
_LONGEST = 120  # characters of a command in a line


def marked(text: str) -> str:
    return f"{MARK}{text}"


def is_marked(text: str) -> bool:
    return text.lstrip().startswith(MARK)


def without_marked(text: str) -> str:
    """The agent's own text: empty if this one is marked; without a last line that is."""
    if is_marked(text):
        return ""
    said, mark, line = text.rpartition(MARK)
    return said.rstrip() if mark and said[-1:].isspace() and "\n" not in line.strip() else text


def refusal_line(calls: Sequence[RefusedCall]) -> str:
    """What was not run, and where a person can allow it, in one line; empty if nobody can."""
    allowed = [call for call in calls if call.link]
    if not allowed:
        return ""
    first, others = allowed[0], len(allowed) - 1
    subject = " ".join(first.subject.split()).replace("`", "'")
    shown = subject if len(subject) <= _LONGEST else f"{subject[: _LONGEST - 1]}…"
    more = f" (and {others} more)" if others else ""
    where = first.url or f"on the gateway's page, at {first.link}"
    return marked(f"The agent was not allowed to run `{shown}`{more}. Allow it: {where}")


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
