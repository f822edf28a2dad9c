"""A conversation as callers send it: messages of four kinds."""

from typing import TypeAlias

from msgspec import Struct


class Instructions(Struct, frozen=True):
    """What OpenAI calls a system or developer message."""

    text: str


class UserMessage(Struct, frozen=True):
    text: str
    images: tuple[str, ...] = ()  # files that are there when the agent reads the prompt
    name: str = ""  # of one user among several


class Call(Struct, frozen=True):
    id: str
    name: str
    arguments: str  # as it was given: JSON, if the model wrote it well


class AssistantMessage(Struct, frozen=True):
    """What was said and called. Thinking that a client sends back (`reasoning_content`) has no place here: nobody was
    told it as an answer, no model takes it back as text, and one that reads it as said repeats it."""

    text: str
    calls: tuple[Call, ...] = ()


class ToolMessage(Struct, frozen=True):
    """The result of a call."""

    text: str
    call_id: str
    name: str = ""  # of the tool, where it is known
    images: tuple[str, ...] = ()


Message: TypeAlias = Instructions | UserMessage | AssistantMessage | ToolMessage
