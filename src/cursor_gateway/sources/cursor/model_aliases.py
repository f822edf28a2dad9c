"""A model's name as a client knows it in; one of Cursor's models out.

Clients send names of Claude, GPT and Gemini models by default, including names that Cursor does not have. An alias
stands for one of Cursor's models, or for a word: then for the newest model with that word in its name.
"""

import re
from collections.abc import Mapping, Sequence

from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.models import is_known

CLAUDE = "claude-"
FAMILIES = ("opus", "sonnet", "haiku", "fable", "mini", "nano", "gpt", "gemini")
_SMALL = ("mini", "nano")
_OLDER = re.compile(
    r"(?:chatgpt-|gpt-[34]|o[134](?![0-9])).*"
)  # what OpenAI's clients send; also Azure's `gpt-35-turbo`
_NEWER = re.compile(r"(?:gpt|gemini)-.+")  # may be Cursor's own
_FALLBACK = "auto"
_VERSION = re.compile(r"\d+(?![0-9A-Za-z])")  # without the 1m of a context's size
_DATE = 1000  # larger numbers are dates


def is_alias(name: str, aliases: Mapping[str, str]) -> bool:
    return name in aliases or name.startswith(CLAUDE) or any(names.fullmatch(name) for names in (_OLDER, _NEWER))


def resolve(name: str, aliases: Mapping[str, str], models: Sequence[Model]) -> str:
    """Any name that `is_alias` stands for a model; if nothing better is listed, for `auto`.

    Without a list, a name that may be Cursor's own is left to the agent.
    """
    if not models and name not in aliases and not _OLDER.fullmatch(name) and _NEWER.fullmatch(name):
        return name
    if name not in aliases:
        for listed in (name, name.removeprefix(CLAUDE)):  # the second: a name under which Claude Code lists it
            if _is_listed(listed, models):
                return listed
    family = max((family for family in (*aliases, *FAMILIES) if family in name), key=len, default="")
    return _meant(aliases.get(name) or aliases.get(family, family), models)


def name_for_claude_code(id: str) -> str:
    """Claude Code shows only models whose names contain `claude`."""
    return id if "claude" in id or "anthropic" in id else f"{CLAUDE}{id}"


def _meant(target: str, models: Sequence[Model]) -> str:
    if _is_listed(target, models):
        return target
    found = [model.id for model in models if target and _has_word(model.id, target)]
    return max(found, key=lambda name: (not _is_small(name), _version(name), -len(name)), default=_FALLBACK)


def _has_word(name: str, word: str) -> bool:
    """Not within another word: `gemini` is no `mini`."""
    return re.search(rf"(?<![0-9A-Za-z]){re.escape(word)}(?![A-Za-z])", name) is not None


def _is_small(name: str) -> bool:
    return any(_has_word(name, word) for word in _SMALL)


def _is_listed(name: str, models: Sequence[Model]) -> bool:
    """By its id; a base name, of which only variants are listed, is one if it has a version."""
    is_listed = any(name.partition("[")[0] == model.id for model in models)
    return is_listed or name == _FALLBACK or (any(map(str.isdigit, name)) and is_known(name, models))


def _version(id: str) -> tuple[int, ...]:
    return tuple(number for found in _VERSION.findall(id) if (number := int(found[:9])) < _DATE)
