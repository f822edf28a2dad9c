"""A conversation's name, as people type it, in; the conversation, of a gateway or of this machine, out."""

import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cursor_gateway.cli.assembly.local_client import AnyClient
from cursor_gateway.cli.assembly.remote import Remote
from cursor_gateway.cli.output import Trouble
from cursor_gateway.errors import NotFound
from cursor_gateway.model.history import ConversationDetail, ConversationEntry

_Found = TypeVar("_Found")

LAST = "last"

_WHOLE = re.compile(r"conv_[0-9a-f]{32}")
_SURE_LENGTH = 17  # of an id: twelve random digits belong to one conversation, so there is no need to see them all
_SHOWN = 4  # conversations that an ambiguous name may mean


async def newest(client: AnyClient, limit: int, query: str | None = None) -> tuple[list[ConversationEntry], bool]:
    """So many, and whether there are more."""
    found = [entry async for entry in client.conversations(query, limit + 1)]
    return found[:limit], len(found) > limit


async def first(client: AnyClient, fits: Callable[[ConversationEntry], bool]) -> ConversationEntry | None:
    async for entry in client.conversations():
        if fits(entry):
            return entry
    return None


async def id_of(client: AnyClient, name: str) -> str:
    """Of a whole id, of the beginning of one, with or without `conv_`, or of `last`.

    Raises `Trouble` for none or several. A whole id is not looked up.
    """
    if _WHOLE.fullmatch(name):
        return name
    if name == LAST:
        async for entry in client.conversations(limit=1):
            return entry.id
        raise Trouble("no conversations yet; start one with `cursor-gateway chat`.")
    beginning = name if name.startswith("conv_") else f"conv_{name}"
    fitting: list[ConversationEntry] = []
    async for entry in client.conversations():
        if name and entry.id.startswith(beginning):
            fitting.append(entry)
            if len(beginning) >= _SURE_LENGTH or len(fitting) > _SHOWN:
                break
    if not fitting:
        raise unknown(name)
    if len(fitting) > 1:
        several = ", ".join(entry.id for entry in fitting[:_SHOWN]) + (" …" if len(fitting) > _SHOWN else "")
        raise Trouble(f"{name!r} matches several conversations: {several}; type more characters.")
    return fitting[0].id


async def find(client: AnyClient, name: str) -> ConversationDetail:
    """Raises `Trouble` if there is none."""
    detail = await or_none(client.conversation(await id_of(client, name)))
    if detail is None:
        raise unknown(name)
    return detail


async def or_none(call: Awaitable[_Found]) -> _Found | None:
    """None: there is no such thing."""
    from cursor_gateway.client.failures import CallFailed

    try:
        return await call
    except (CallFailed, NotFound) as error:
        if error.code == NotFound.code:
            return None
        raise


def sure_id(id: str) -> str:
    """As much of an id as `id_of` needs to be sure, for lines that must be short."""
    return id[:_SURE_LENGTH]


def unknown(name: str) -> Trouble:
    return Trouble(f"Unknown conversation {name[:100]!r}; see `cursor-gateway conversations`.")


def RemoteHistory(remote: Remote) -> AnyClient:  # noqa: N802
    return remote.client
