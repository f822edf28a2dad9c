"""Hash a conversation, so that it is recognized when a client sends it again.

Plain clients of OpenAI's API send the whole history with every request and no id for it. The fingerprint finds the
agent's session with this history; a history that was edited, shortened or reordered has another fingerprint.

Some clients describe the date, the folder and git's status in it, and write that again for every request, or leave it
out later: the same conversation would be another one on the next day, or after a file was written. These passages are
ignored, by a rule for each client, as recorded in tests/prompting/snapshots. Everything else counts: what a person, a
project or a client's settings say is part of the conversation.
"""

import hashlib
import json
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from cursor_gateway.model.documents import Mode
from cursor_gateway.model.messages import AssistantMessage, Instructions, Message, ToolMessage, UserMessage

_REMINDER, _END = "<system-reminder>\n", "</system-reminder>"


class Passage(Struct, frozen=True):
    """From `start` to `end`, both included."""

    start: str
    end: str


_OF_USERS = (
    Passage(f"{_REMINDER}The current date is: ", _END),  # Qwen Code, which leaves it out from the next process on
    Passage(
        f"{_REMINDER}This is the Qwen Code. We are setting up the context", _END
    ),  # the date and the folder's files
)
_OF_INSTRUCTIONS = (
    Passage("Git snapshot at conversation start.", "\n```\n"),  # Qwen Code
    Passage('<context name="gitStatus">', "</context>"),  # Continue
)
# OpenCode, Kilo and Continue in `<env>`, pi at the end, Cline in a list. A line of its own, as long as a date.
_DATE_LINE = re.compile(r"^[ \t]*(?:Today's date|Current date|\d\. Date): [^\n]{1,40}$", re.MULTILINE)


class Scope(Struct, frozen=True, kw_only=True):
    """What else must match: a session belongs to one owner, one folder and one set of tools."""

    owner: str
    workspace: str
    mode: Mode
    tools: tuple[str, ...] = ()
    client_session: str = ""  # the client's own id for its session, if any


def fingerprint(scope: Scope, messages: Sequence[Message]) -> str:
    encoded = msgspec.json.encode([scope, [_normalized(message) for message in messages]])
    return hashlib.sha256(encoded).hexdigest()


def answered(messages: Sequence[Message]) -> int:
    """The number of messages up to and including the last answer: what a session would know already."""
    return max(
        (number for number, message in enumerate(messages, 1) if isinstance(message, AssistantMessage)), default=0
    )


def _normalized(message: Message) -> list[object]:
    """Ignores what clients change: white space around texts, the formatting of arguments, and what they write about the
    date, the folder and git.

    In an answer all white space is ignored: a client that got it in several parts joins them in its own way. An image
    is identified by its content.
    """
    text = message.text.strip()
    match message:
        case Instructions():
            return ["instructions", _DATE_LINE.sub("", _without(text, _OF_INSTRUCTIONS))]
        case UserMessage(images=images, name=name):
            said = _without(text, _OF_USERS) if _REMINDER in text else text
            return ["user", said, name, images]
        case AssistantMessage(calls=calls):
            called = [[call.id, call.name, _normalized_json(call.arguments)] for call in calls]
            return ["assistant", "".join(["".join(line.split()) for line in text.splitlines()]), called]
        case ToolMessage(call_id=call_id, images=images):
            return ["tool", text, call_id, images]


def _normalized_json(arguments: str) -> object:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):  # the model may write invalid JSON
        return arguments


def _without(text: str, passages: Sequence[Passage]) -> str:
    for passage in passages:
        if passage.start in text:
            text = _cut(f"{text}\n", passage)  # its last line is a line, too
    return text


def _cut(text: str, passage: Passage) -> str:
    """Each character is looked at once, however many beginnings there are. White space around it goes, too: clients put
    blank lines between passages."""
    kept: list[str] = []
    place = 0
    while (start := text.find(passage.start, place)) >= 0:
        end = text.find(passage.end, start + len(passage.start))
        if end < 0:
            break
        kept.append(text[place:start].strip())
        place = end + len(passage.end)
    kept.append(text[place:].strip())
    return "\n".join(filter(None, kept))
