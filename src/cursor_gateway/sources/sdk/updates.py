"""Turn the SDK's event objects into plain data for the decoder."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

# Only the kind of these is used: the deltas have the content.
_WHOLE_MESSAGES = frozenset({"assistant", "thinking", "tool_call"})


def plain(event: Any) -> Mapping[str, Any]:
    """`event` is a `RunStreamEvent`; its attributes depend on its `kind`."""
    match event.kind:
        case "interaction_update":
            return _fields(event.interaction_update)
        case "sdk_message":
            message = _fields(event.sdk_message)
            if message.get("type") in _WHOLE_MESSAGES:
                return {"type": message["type"]}
            return {name: _plain(value) for name, value in message.items()}
        case "result":
            return _fields(event.result)
        case _:
            return {}


def size_of(update: Mapping[str, Any]) -> int:
    """About its size on the wire, in characters. Not recursive: a tool's result may be nested deeply."""
    size, rest = 0, [update]
    while rest:
        value: Any = rest.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            size += sum(map(len, value))
            rest += value.values()
        elif isinstance(value, list | tuple):
            rest += value
        elif is_dataclass(value):
            rest.append(vars(value))
        else:
            size += 8
    return size


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else vars(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {name: _plain(below) for name, below in vars(value).items()}
    if isinstance(value, tuple):
        return [_plain(below) for below in value]
    return value
