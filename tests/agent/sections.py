"""A prompt that the gateway rendered in; what a going-on program needs of its sections, out.

The sections are separated as cursor_gateway.prompting.prompt writes them: `--- MARKER kind {"id": …, "name": …}`.
"""

import json
import re

_HEADING = re.compile(r"^--- ([0-9a-f]{16}) ([a-z]+)(?: (\{.*\}))?$", re.MULTILINE)


class Section:
    def __init__(self, kind: str, about: dict[str, str], body: str) -> None:
        self.kind = kind
        self.id = about.get("id", "")
        self.name = about.get("name", "")
        self.body = body


class Given:
    """A tool's result that the caller gave; the arguments are those of its call, where the prompt has them."""

    def __init__(self, name: str, arguments: object, text: str) -> None:
        self.name = name
        self.arguments = arguments
        self.text = text


def sections(prompt: str, after: int = 0) -> list[Section]:
    """Those that begin after a place in the prompt. The first heading's marker is the true one."""
    all_headings = [*_HEADING.finditer(prompt)]
    headings = [found for found in all_headings if found[1] == all_headings[0][1]]
    ends = [*(found.start() - 1 for found in headings[1:]), len(prompt)]
    return [
        Section(found[2], json.loads(found[3] or "{}"), prompt[found.end() + 1 : end])
        for found, end in zip(headings, ends, strict=False)  # without a heading, there is an end all the same
        if found.start() >= after
    ]


def results_in(prompt: str, after: int = 0) -> list[Given]:
    """In the order of their calls, where the prompt has all of these, else in their own."""
    found = sections(prompt, after)
    calls = {section.id: section for section in found if section.kind == "call"}
    results = [section for section in found if section.kind == "result"]
    if all(section.id in calls for section in results):
        order = [*calls]
        results.sort(key=lambda section: order.index(section.id))
    return [Given(one.name, _arguments(calls.get(one.id)), one.body + _images(found, one)) for one in results]


def user_in(prompt: str, after: int = 0) -> str:
    """What the user said last."""
    return next((one.body for one in reversed(sections(prompt, after)) if one.kind == "user"), "")


def _arguments(call: Section | None) -> object:
    try:
        return json.loads(call.body) if call else None
    except ValueError:
        return None


def _images(found: list[Section], result: Section) -> str:
    """They stand right behind what they belong to."""
    behind = found[found.index(result) + 1 :]
    return f"\n{behind[0].body}" if behind and behind[0].kind == "images" else ""
