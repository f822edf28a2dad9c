"""Look up stored responses: read the query, list the input items of the request."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cursor_gateway.errors import InvalidRequest

_DEFAULT_LIMIT, _MOST = 20, 100
_PREFIXES = {
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}


def deleted(id: str) -> bytes:
    return msgspec.json.encode({"id": id, "object": "response", "deleted": True})


def starting_after(query: Mapping[str, str]) -> int:
    """The number of the last event that a reader has; -1 for none."""
    asked = query.get("starting_after", "")
    if not asked:
        return -1
    if not (asked.isascii() and asked.isdigit() and len(asked) < 16):
        raise InvalidRequest("starting_after must be the sequence_number of an event.", param="starting_after")
    return int(asked)


def list_items(input: list[dict[str, Any]], query: Mapping[str, str]) -> bytes:
    """One page of the input items, the latest first unless another order is asked for."""
    items = [_complete(item, number) for number, item in enumerate(input)]
    order = query.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc.", param="order")
    if order == "desc":
        items.reverse()
    if after := query.get("after", ""):
        places = [place for place, item in enumerate(items, 1) if item["id"] == after]
        if not places:
            raise InvalidRequest("after must be the id of an input item of this response.", param="after")
        items = items[places[0] :]
    limit = _limit(query)
    page = items[:limit]
    return msgspec.json.encode(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else "",
            "last_id": page[-1]["id"] if page else "",
            "has_more": len(items) > limit,
        }
    )


def _limit(query: Mapping[str, str]) -> int:
    asked = query.get("limit", "") or str(_DEFAULT_LIMIT)
    if not (asked.isascii() and asked.isdigit() and len(asked) < 4 and 1 <= int(asked) <= _MOST):
        raise InvalidRequest(f"limit must be a number from 1 to {_MOST}.", param="limit")
    return int(asked)


def _complete(item: dict[str, Any], number: int) -> dict[str, Any]:
    """With what a client may leave out."""
    kind = item.get("type") or "message"
    full = {**item, "type": kind, "id": item.get("id") or f"{_PREFIXES.get(kind, 'msg')}_input_{number}"}
    if kind == "message":
        full.setdefault("status", "completed")
        if isinstance(full.get("content"), str):
            part = "output_text" if full.get("role") == "assistant" else "input_text"
            more: dict[str, Any] = {"annotations": []} if part == "output_text" else {}
            full["content"] = [{"type": part, "text": full["content"], **more}]
    return full
