"""The gateway's source in; the sentences that it can say out: the texts passed to errors and findings, `…` for values.

Only what can be read off the source is found: literals, f-strings, and names that are assigned one of them nearby.
"""

import ast
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

_SOURCE = Path(__file__).parents[2] / "src" / "cursor_gateway"
_ELLIPSIS = "…"
_CONSTANT = re.compile(r"_?[A-Z][A-Z_]+")
_Scope: TypeAlias = Mapping[str, list[ast.expr]]


class Said(Struct, frozen=True):
    name: str  # of the class that is called
    texts: tuple[str, ...]  # its arguments by position


def said(names: Collection[str]) -> list[Said]:
    """Every call `Name("…")` of these classes, and every row `(…, Name, "…")` of a table."""
    modules = _modules()
    constants = _constants(modules)
    return [one for module in modules for one in _said_in(module, names, constants)]


@cache
def _modules() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(_SOURCE.rglob("*.py"))]


def sentences(found: Collection[Said], name: str) -> list[str]:
    """The first texts of this class, without those that are only values."""
    texts = {one.texts[0] for one in found if one.name == name and one.texts}
    return sorted((text for text in texts if _words(text)), key=lambda text: text.strip(f"{_ELLIPSIS}` ").casefold())


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{2,}", text)


def _constants(modules: Collection[ast.Module]) -> _Scope:
    """Module-level names that look like constants. Those with several values are resolved in their own module only."""
    found: dict[str, list[ast.expr]] = {}
    for module in modules:
        for name, values in _assigned(module.body).items():
            if _CONSTANT.fullmatch(name):
                found.setdefault(name, []).extend(values)
    return {name: values for name, values in found.items() if len(values) == 1}


def _said_in(module: ast.Module, names: Collection[str], constants: _Scope) -> Iterator[Said]:
    top = {**constants, **_assigned(module.body)}
    for node, function in _with_functions(module):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[_, *_] as arguments) if (
                name in names
            ):
                scope = _scope(top, function)
                yield Said(name, tuple(_text(argument, scope) for argument in arguments))
            case ast.Tuple(elts=[*_, ast.Name(id=name) | ast.Attribute(attr=name), ast.expr() as message]) if (
                name in names
            ):
                if ast.unparse(message).rpartition(".")[2] not in names:
                    yield Said(name, (_text(message, _scope(top, function)),))


def _with_functions(module: ast.Module) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Every node, with the innermost function around it; a function is its own."""
    queue: deque[tuple[ast.AST, ast.AST | None]] = deque([(module, None)])
    while queue:
        node, function = queue.popleft()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node
        queue.extend((child, function) for child in ast.iter_child_nodes(node))
        yield node, function


def _scope(top: _Scope, function: ast.AST | None) -> _Scope:
    return top if function is None else {**top, **_assigned(list(ast.walk(function)))}


def _assigned(nodes: Collection[ast.AST]) -> _Scope:
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case _:
                pass
    return found


def _text(node: ast.expr, scope: _Scope) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=parts):
            return re.sub(f"{_ELLIPSIS}+", _ELLIPSIS, "".join(_part(part, scope) for part in parts))
        case ast.Name(id=name) if name in scope:
            before = [value for value in scope[name] if value.lineno < node.lineno] or scope[name]
            return _text(max(before, key=lambda value: value.lineno), _without(scope, name))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_text(left, scope)}{_text(right, scope)}"
        case ast.Call(func=ast.Name(id="quoting"), args=[message, _]):
            return f"{_text(message, scope)} The agent says: {_ELLIPSIS}"
        case _:
            return _ELLIPSIS


def _part(part: ast.expr, scope: _Scope) -> str:
    match part:
        case ast.FormattedValue(value=ast.Name(id=name) as value) if _CONSTANT.fullmatch(name):
            return _text(value, scope)
        case ast.FormattedValue():
            return _ELLIPSIS
        case _:
            return _text(part, scope)


def _without(scope: _Scope, name: str) -> _Scope:
    """A name that is assigned from itself must not be followed for ever."""
    return {other: values for other, values in scope.items() if other != name}
