"""The module `re`, as far as a turn of the stand-in needs it: with patterns that were compiled when it was installed.

`re` and what it imports take as long as all else that the stand-in imports, and compiling takes its time, too.
`prepared` makes what `use` reads. What was not prepared is compiled by `re`, which also answers whatever else is asked.
"""

import _sre  # type: ignore[import-not-found]
import marshal
import os
import sys

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest
if TYPE_CHECKING:
    from re import Pattern
    from types import ModuleType
    from typing import Any

FILE = "standin.patterns"
IGNORECASE, MULTILINE, DOTALL, UNICODE, VERBOSE = 2, 8, 16, 32, 64

_known: "dict[tuple[str | bytes, int], tuple[Any, ...]]" = {}


def use(directory: str) -> None:
    """From now on, `import re` gives this module."""
    try:
        with open(os.path.join(directory, FILE), "rb") as file:
            _known.update(marshal.load(file))
    except OSError:
        return
    sys.modules["re"] = sys.modules[__name__]


def compile(pattern: "str | bytes", flags: int = 0) -> "Pattern[Any]":
    found = _known.get((pattern, flags | UNICODE if isinstance(pattern, str) else flags))
    if found is None:
        return _real().compile(pattern, flags)  # type: ignore[no-any-return]
    return _sre.compile(pattern, *found)  # type: ignore[no-any-return]


def sub(pattern: str, replacement: "Any", text: str) -> str:
    return compile(pattern).sub(replacement, text)  # type: ignore[no-any-return]


def fullmatch(pattern: str, text: str, flags: int = 0) -> "Any":
    return compile(pattern, flags).fullmatch(text)


def findall(pattern: str, text: str) -> "list[Any]":
    return compile(pattern).findall(text)


def __getattr__(name: str) -> "Any":
    if name.startswith("__"):  # which `import` asks for
        raise AttributeError(name)
    return getattr(_real(), name)


def _real() -> "ModuleType":
    if sys.modules.get("re") is sys.modules[__name__]:
        del sys.modules["re"]
    import re

    return re


def prepared() -> bytes:
    """All patterns of the modules that are imported for a turn, and those that are only used in functions."""
    import json.decoder
    import json.encoder
    import json.scanner
    import re

    modules = [module for name, module in sys.modules.items() if name.startswith("tests.agent.") or "json." in name]
    modules += [json.decoder, json.encoder, json.scanner]
    patterns = {value for module in modules for value in vars(module).values() if isinstance(value, re.Pattern)}
    patterns |= {re.compile(pattern, flags) for pattern, flags in _IN_FUNCTIONS}
    try:
        return marshal.dumps({(one.pattern, one.flags): _compiled(one.pattern, one.flags) for one in patterns})
    except AttributeError:  # another version of Python has other insides
        return marshal.dumps({})


_IN_FUNCTIONS = (
    (r"(\w+)\((.*)\)", DOTALL),
    (r"[^A-Za-z0-9]+", 0),
    (r"\s*\S+|\s+$", 0),
    ("[A-Z]", 0),
    ("-([1-9][0-9]*)", 0),
)


def _compiled(pattern: "str | bytes", flags: int) -> "tuple[Any, ...]":
    """What `_sre.compile` is given after the pattern; as `re._compiler.compile` has it."""
    from re import _compiler, _parser  # type: ignore[attr-defined]

    parsed = _parser.parse(pattern, flags & ~UNICODE)
    names = dict(parsed.state.groupdict)
    by_number = [None] * parsed.state.groups
    for name, number in names.items():
        by_number[number] = name
    code = list(map(int, _compiler._code(parsed, flags & ~UNICODE)))
    return int(flags | parsed.state.flags), code, parsed.state.groups - 1, names, tuple(by_number)
