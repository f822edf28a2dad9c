"""Answers that must be JSON: ask for them, find the JSON, check it, and ask again.

The agent has no option for this, so the prompt asks for it and the answer is checked. References are resolved within
the schema only, never over the network. Regular expressions and `uniqueItems` are requested but not checked: a schema
can make them take forever, which would block every other run.
"""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.markdown.blocks import BlockParser, Closed, Content, Opened, Prose
from cursor_gateway.model.caller_tools import LARGEST_SCHEMA
from cursor_gateway.wire.json_body import refuse_constant

if TYPE_CHECKING:
    from jsonschema.exceptions import SchemaError, ValidationError

_LONGEST_REASON = 600
_DATA = frozenset({"const", "enum", "default", "examples"})  # their values are not schemas
_LINE_END = re.compile(r"\r\n|\n|\r")  # not U+2028, which may be in a JSON string
_OPENING = re.compile(r"""\{\s*["}]|\[\s*["\[\]{0-9tfn-]""")  # excludes most braces in code
_MOST_STEPS = 200_000  # per check: forty definitions that each refer twice to the next would take forever
_STEPS_OF_A_REFERENCE = 20
_PARTS_A_STEP = 20  # for keywords with many entries: the values of an enum are compared one by one
_READS = 32  # the search for JSON gives up after reading each character this often


class JsonObject(Struct, frozen=True):
    """Any JSON object."""


class JsonSchema(Struct, frozen=True):
    schema: dict[str, Any]
    name: str = ""
    description: str = ""
    strict: bool = False  # answers are checked either way


Format: TypeAlias = JsonObject | JsonSchema


class Fit(Struct, frozen=True):
    text: str  # the JSON alone


class Misfit(Struct, frozen=True):
    reason: str  # a sentence, for the agent and for people


# --- asking -----------------------------------------------------------------------------------------


def instructions(format: Format) -> str:
    alone = "Write nothing before or after it: no explanation, no code fence."
    match format:
        case JsonObject():
            return f"Your final answer must be one JSON object. {alone}"
        case JsonSchema(schema=schema, name=name, description=description):
            what = f" (“{name}”)" if name else ""
            about = f" {description.strip()}" if description.strip() else ""
            rules = msgspec.json.encode(schema).decode()
            return (
                f"Your final answer must be one JSON value{what} that is valid against the JSON Schema below.{about} "
                f"{alone}\n\n{rules}"
            )


def repair_prompt(misfit: Misfit, format: Format) -> str:
    return (
        f"Your last answer cannot be used. {misfit.reason} Do no more work for it: only write the same answer again in "
        f"the right form. {instructions(format)}"
    )


# --- finding ----------------------------------------------------------------------------------------


def extract_json(text: str, last: str = "") -> str | None:
    """The JSON in an answer: the whole text, its only fenced block, its last block marked `json`, or the longest object
    or array in it, in this order; None if none of these is JSON.

    `last` is its text after the agent's last action, which comes first, unless it only mentions an array: before its
    answer, an agent often quotes other JSON.
    """
    if last and last != text and (found := extract_json(last)) and not (found[0] == "[" and found != last.strip()):
        return found
    blocks = _fenced(text)
    only = [content for _, content in blocks] if len(blocks) == 1 else []
    named = [content for info, content in blocks if info.split()[:1] in (["json"], ["JSON"])]
    for candidate in (text, *only, *named[-1:]):
        if _is_json(candidate):
            return candidate.strip()
    return max(_values(text), key=len, default=None)


def _fenced(text: str) -> list[tuple[str, str]]:
    """The fenced blocks, each with info string and content, including one that is never closed."""
    parser = BlockParser()
    blocks: list[tuple[str, list[str]]] = []
    for line in _LINE_END.split(text):
        match parser.line(line):
            case Opened(info=info):
                blocks.append((info, []))
            case Content(text=content):
                blocks[-1][1].append(content)
            case Closed() | Prose():
                pass
    return [(info, "\n".join(lines)) for info, lines in blocks]


def _values(text: str) -> Iterator[str]:
    """The outermost objects and arrays in a text."""
    reads, at = _READS * len(text), 0
    while reads > 0 and (start := _OPENING.search(text, at)):
        at = start.start()
        try:
            _, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            reads -= error.pos - at + error.pos // 64  # the error counts lines from the start, which is fast
            at += 1
        except (ValueError, RecursionError):  # an invalid number, or nested too deeply
            reads -= len(text) - at
            at += 1
        else:
            yield text[at:end]
            at = end


_DECODER = json.JSONDecoder(parse_constant=refuse_constant)


def _is_json(text: str) -> bool:
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


# --- checking ---------------------------------------------------------------------------------------


def read_format(
    schema: dict[str, Any] | None, param: str, name: str | None = "", description: str | None = "", *, strict: bool
) -> JsonSchema:
    """The format that a request asks for. Raises `InvalidRequest`."""
    schema = schema or {}
    if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
        raise InvalidRequest(
            f"{param}: The schema is larger than {LARGEST_SCHEMA} bytes; use a smaller one.", param=param
        )
    check_schema(schema, param)
    return JsonSchema(schema, name or "", description or "", strict)


def check_schema(schema: dict[str, Any], param: str = "response_format.json_schema.schema") -> None:
    """Raises `InvalidRequest` unless it is a JSON Schema (2020-12) whose references it contains."""
    from jsonschema import Draft202012Validator  # imported late: it takes 0.1 s and is rarely needed
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema)
        resolver = Registry[Any]().resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise InvalidRequest(
                    f"{param} refers to {reference!r}, which it does not contain; add the definition to its $defs.",
                    param=param,
                ) from None
    except SchemaError as error:
        raise InvalidRequest(f"{param} is not a JSON Schema: {_reason(error)}.", param=param) from None
    except (RecursionError, ValueError) as error:  # ValueError: an $id that is not a URI
        raise InvalidRequest(f"{param} cannot be used: {error}.", param=param) from None


def check(text: str, format: Format, last: str = "") -> Fit | Misfit:
    found = extract_json(text, last)
    if found is None:
        return Misfit("There is no JSON in it.")
    match format:
        case JsonObject():
            return Fit(found) if found.startswith("{") else Misfit("It is JSON, but no object.")
        case JsonSchema(schema=schema):
            try:
                wrong = violation(json.loads(found), schema)
            except Uncheckable as error:
                wrong = f"it could not be checked ({error})"
            return Misfit(f"It does not fit the schema: {wrong}.") if wrong else Fit(found)


class Uncheckable(Exception):
    """A schema that cannot be used, mostly because it refers to itself without end."""


def violation(value: object, schema: dict[str, Any]) -> str:
    """Why the value is invalid; empty if it is valid. Raises `Uncheckable`."""
    from jsonschema.exceptions import best_match
    from referencing import Registry

    try:
        checked = _without_patterns(schema)
        error = best_match(_counting_validator(_MOST_STEPS)(checked, registry=Registry()).iter_errors(value))
    except Uncheckable:
        raise
    except Exception as failed:  # the schema is untrusted, and jsonschema may raise anything on a bad one
        raise Uncheckable(_cut(str(failed))) from failed
    return "" if error is None else _reason(error)


def _counting_validator(steps: int) -> Any:
    """Gives up after that many keywords. A referenced schema counts each time it is applied."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    left = steps

    def counted(name: str, check: Any) -> Any:
        cost = _STEPS_OF_A_REFERENCE if name in ("$ref", "$dynamicRef") else 1

        def run(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            nonlocal left
            left -= cost + (len(value) // _PARTS_A_STEP if isinstance(value, list | dict) else 0)
            if left < 0:
                raise Uncheckable("it takes too many steps")
            return check(validator, value, instance, schema)

        return run

    checks = {name: counted(name, check) for name, check in Draft202012Validator.VALIDATORS.items()}
    return extend(Draft202012Validator, checks)  # type: ignore[no-untyped-call] # jsonschema has no type for this


_BY_NAME = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_OF_PATTERNS = frozenset({"pattern", "patternProperties", "uniqueItems"})  # `uniqueItems` is quadratic
# With `patternProperties`, a pattern decides which properties these apply to.
_LEFT_OVER = frozenset({"additionalProperties", "unevaluatedProperties"})


def _without_patterns(schema: Any) -> Any:
    match schema:
        case list():
            return [_without_patterns(item) for item in schema]
        case dict():
            dropped = _OF_PATTERNS | _LEFT_OVER if "patternProperties" in schema else _OF_PATTERNS
            return {key: _kept(key, value) for key, value in schema.items() if key not in dropped}
        case _:
            return schema


def _kept(key: str, value: Any) -> Any:
    if key in _BY_NAME and isinstance(value, dict):
        return {name: _without_patterns(its) for name, its in value.items()}
    return value if key in _DATA else _without_patterns(value)


def _references(schema: object) -> Iterator[str]:
    """The references in a schema, except those in subschemas that have their own `$id`."""
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            elif key not in _DATA and not (isinstance(value, dict) and "$id" in value):
                yield from _references(value)


def _reason(error: "ValidationError | SchemaError") -> str:
    place = error.json_path.removeprefix("$").removeprefix(".")
    return _cut(f"{place}: {error.message}" if place else error.message)


def _cut(text: str) -> str:
    """Shortened: jsonschema quotes the value, which may be the whole answer."""
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
