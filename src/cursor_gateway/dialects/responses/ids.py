"""The ids of responses and of their items: each names the run and the reply that it belongs to.

`resp_<run>` is a run's first reply and `resp_<run>_<after>` a later one, which begins after that event;
`msg_<run>_<after>_<index>` is the item of that index in its output. Clients send items back with their ids, so
the gateway recognizes its own items.
"""

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.dialects.base import AnswerId

Prefix: TypeAlias = Literal["msg", "rs", "fc", "ctc", "mcp", "ws", "cmp"]

MESSAGE = "msg_"  # what the ids of messages begin with
_RUN = "chat_"
_RESPONSE = re.compile(r"resp_([0-9a-zA-Z]+)(?:_([0-9]{1,12}))?", re.ASCII)
_ITEM = re.compile(r"(?:msg|rs|fc|ctc|mcp|ws|cmp)_([0-9a-f]{32})_([0-9]{1,12})_([0-9]{1,12})", re.ASCII)


class ItemId(Struct, frozen=True):
    answer: AnswerId
    index: int


def response_id(run_id: str, after: int) -> str:
    return f"resp_{run_id.removeprefix(_RUN)}{f'_{after}' if after else ''}"


def answer_id(id: str) -> AnswerId | None:
    """None: it is no response's."""
    found = _RESPONSE.fullmatch(id)
    return None if found is None else AnswerId(f"{_RUN}{found[1]}", int(found[2] or 0))


def item_id(prefix: Prefix, run_id: str, after: int, index: int) -> str:
    return f"{prefix}_{run_id.removeprefix(_RUN)}_{after}_{index}"


def read_item_id(id: str) -> ItemId | None:
    """None: the item is not one of the gateway's."""
    found = _ITEM.fullmatch(id)
    return None if found is None else ItemId(AnswerId(f"{_RUN}{found[1]}", int(found[2])), int(found[3]))
