"""A conversation and what is new in it in; the agent's turns out: with only what is new, or with everything."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_bytes

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.model.messages import Image, Instructions, Message, place_images
from cursor_gateway.prompting.prompt import bare, render
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.private_files import data_of
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.stages.tokens import estimate_tokens_by_sample

_NEW_FILE = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Conversation(Struct, frozen=True, kw_only=True):
    """The conversation of a turn, or one that begins with it."""

    id: str
    workspace: str
    session_id: str | None  # the agent's own, which knows `known`
    known: Sequence[Message]  # what was said before
    new: Sequence[Message]
    given_known: int = 0  # how many of the request's messages are among `known`
    version: str = ""  # changes when a run in it begins or ends; empty for a new one


class TurnBuilder(Struct, frozen=True, kw_only=True):
    """How one run asks its agent, at first and whenever the agent has to be started again."""

    conversation: Conversation
    turn: Turn  # with all but the prompt and the session
    preamble: Callable[[str | None], Sequence[str]]  # what holds for this run, by the source that is asked
    images: Sequence[tuple[Image, str]]  # and their files; their messages are counted as the request has them
    prompts: "Prompts"
    knows_session: bool  # the agent still has the conversation's session

    def with_source(self, source: str | None) -> "TurnBuilder":
        """The same for another source, which has no session."""
        return replace(self, turn=replace(self.turn, source=source), knows_session=False)

    @property
    def known_tokens(self) -> int:
        """About the size of the session."""
        return estimate_tokens_by_sample("\n".join(message.text for message in self.conversation.known))

    def initial(self) -> Turn:
        if not self.knows_session:
            return self.fresh()
        conversation = self.conversation
        prompt = self.prompts.next(self._messages(conversation.new, conversation.given_known))
        return replace(self.turn, prompt=prompt, session_id=conversation.session_id)

    def fresh(self, more: Sequence[Message] = ()) -> Turn:
        """For an agent without a session: the whole conversation, and what has happened in the run since."""
        conversation = self.conversation
        said = [*conversation.known, *conversation.new, *more]
        prompt = self.prompts.initial(self._messages(said, conversation.given_known - len(conversation.known)))
        return replace(self.turn, prompt=prompt, session_id=None)

    def resumed(
        self, source: SourceRouter, session_id: str | None, new: Sequence[Message], more: Sequence[Message]
    ) -> Turn:
        """In the middle of the run: only the `new` messages if the agent still has its session, else everything."""
        turn = replace(self.turn, session_id=session_id)
        if session_id is None or not source.has_session(turn):
            return self.fresh(more)
        return replace(turn, prompt=self.prompts.next([*map(Instructions, self.preamble(self.turn.source)), *new]))

    def _messages(self, said: Sequence[Message], first: int) -> list[Message]:
        """`first` is the place in the request of the first of these messages."""
        shown = [(replace(image, message=image.message - first), path) for image, path in self.images]
        shown = [(image, path) for image, path in shown if 0 <= image.message < len(said)]
        placed = place_images(said, [image for image, _ in shown], [path for _, path in shown])
        return [*map(Instructions, self.preamble(self.turn.source)), *placed]


class Prompts:
    """The prompts of one conversation. A file in its folder records that the agent's session has only seen bare
    messages. Once it has seen sections, a bare message could pretend to be one, so all messages are fenced from then
    on.
    """

    def __init__(self, secret: bytes, folder: str) -> None:
        """`secret` is the gateway's, so that no one else can predict a marker."""
        self._secret, self._is_bare = secret, f"{folder}/bare"
        self._shared = f"{data_of(folder)}/.bare"

    def initial(self, messages: Sequence[Message]) -> str:
        """For a session that begins with it."""
        if (prompt := bare(messages)) is not None:
            self._set_bare()
            return prompt
        self._set_fenced()
        return render(messages, self._secret)

    def next(self, messages: Sequence[Message]) -> str:
        """For a session that continues."""
        if (prompt := bare(messages)) is not None and os.path.exists(self._is_bare):
            return prompt
        self._set_fenced()
        return render(messages, token_bytes(), goes_on=True)

    def _set_bare(self) -> None:
        """The file is a link to one that all conversations share, as far as possible: a link takes a tenth of the time
        of a new file. A file may have some ten thousand links, then a new one is shared."""
        try:
            os.link(self._shared, self._is_bare)
        except FileExistsError:
            pass
        except OSError:
            try:
                os.close(os.open(self._is_bare, _NEW_FILE, 0o600))
            except OSError:
                return  # then the next prompt is fenced
            with suppress(OSError):
                os.unlink(self._shared)
            with suppress(OSError):
                os.link(self._is_bare, self._shared)

    def _set_fenced(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._is_bare)
