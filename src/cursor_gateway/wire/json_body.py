"""A JSON body in; a value of the type that is expected, or an error that names the field, out."""

import json
import re
from difflib import get_close_matches
from typing import TypeVar

import msgspec

from cursor_gateway.errors import InvalidRequest

T = TypeVar("T")

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*?)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_LONGEST_NAME = 100  # of a field: it is compared and repeated


def read_json(body: bytes, type: type[T]) -> T:
    """Raises `InvalidRequest`: what is wrong, and where."""
    if not body.strip():
        raise InvalidRequest("The body is empty; send a JSON object.")
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), type) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        mended = _mended(body)
        if mended is None or mended == body:  # Python's decoder takes more, such as NaN
            raise InvalidRequest(f"The body is no JSON: {error}.") from None
        return read_json(mended, type)
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply; send a flatter one.") from None


def _mended(body: bytes) -> bytes | None:
    """Halves of characters (JavaScript can cut one in two and send it) become U+FFFD; None when that is not it."""
    if _HALF.search(body) is None:
        return None
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _misfit(told: str, type: type) -> InvalidRequest:
    place = _PLACE.search(told)
    param = place[1] if place and place[1] else None
    what = _PLACE.sub("", told)
    if unknown := _UNKNOWN.search(what):
        name = unknown[1][:_LONGEST_NAME]
        fields = [field.encode_name for field in msgspec.structs.fields(type)] if param is None else []
        near = get_close_matches(name, fields, 1)
        hint = (
            f"did you mean `{near[0]}`?" if near else f"known are {', '.join(fields)}." if fields else "leave it out."
        )
        return InvalidRequest(f"There is no field `{name}`; {hint}", param=f"{param}.{name}" if param else name)
    where = f" in `{param}`" if param else ""
    return InvalidRequest(f"{what}{where}.", param=param)
