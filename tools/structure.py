"""The size of the package and its dependencies: `python -m tools.structure [--check | --write]`

Prints each figure as it was when counting began, now, its limit (`structure.toml`, which `--check` keeps) and the
target. `--write` makes today's figures the limits: after a change that lowers them, or with a reason to raise one.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

_ROOT = Path(__file__).parents[1]
_LIMITS = Path(__file__).with_suffix(".toml")

# The objects of one run while it is driven.
_LIVE_RUN = (
    *("Run", "RunHandle", "RunMachine", "EventLog", "LiveLog", "OpenCalls"),
    *("CallerTools", "Questions", "UsageTotal", "RunState"),
)


class Figure(NamedTuple):
    meaning: str
    before: float  # at commit 2f56d610, counted in the same way
    target: float


FIGURES = {
    "lines": Figure("non-blank lines of source", 43_140, 37_000),
    "files": Figure("files of source", 380, 270),
    "test_lines": Figure("non-blank lines of tests", 72_020, 65_000),
    "import_percent": Figure("lines of imports, in percent", 10.7, 7.0),
    "single_use_modules": Figure("modules under 60 lines that one other module imports", 37, 20),
    "runs_lines": Figure("non-blank lines of `runs/`", 4_989, 3_700),
    "runs_files": Figure("files of `runs/`", 43, 16),
    "run_attributes": Figure("attributes of the objects of one live run", 133, 45),
    "run_callbacks": Figure("callbacks of these objects that others set later", 8, 0),
    "event_loops": Figure("loops over the events of a run (`reader.next`)", 13, 4),
    "names_twice": Figure("public type names with several meanings", 76, 20),
    "names_thrice": Figure("public type names with three meanings or more", 22, 0),
    "walk_modules": Figure("modules that a streamed completion passes (`tests/server/test_walk.py`)", 90, 60),
    "store_methods": Figure("methods of `Store`", 30, 20),
    "cluster_store_methods": Figure("methods of `ClusterStore`", 30, 20),
    "run_service_methods": Figure("methods of `RunService`", 24, 16),
    "dialect_classes": Figure("classes of `dialects/base.py`", 23, 12),
}


class Module(NamedTuple):
    name: str  # with dots
    path: Path
    lines: int
    tree: ast.Module


def limits() -> dict[str, float]:
    return tomllib.loads(_LIMITS.read_text(encoding="utf-8"))


def measure(root: Path = _ROOT) -> dict[str, float]:
    """All figures except `walk_modules`, which only a run shows."""
    modules = list(_modules(root / "src" / "cursor_gateway"))
    lines = sum(module.lines for module in modules)
    names = _public_types(modules)
    live = [one for module in modules for one in _classes(module) if one.name in _LIVE_RUN]
    of_runs = [module for module in modules if module.path.parent.name == "runs"]
    return {
        "lines": lines,
        "files": len(modules),
        "test_lines": sum(module.lines for module in _modules(root / "tests")),
        "import_percent": round(100 * sum(map(_import_lines, modules)) / lines, 1),
        "single_use_modules": _single_use(modules),
        "runs_lines": sum(module.lines for module in of_runs),
        "runs_files": len(of_runs),
        "run_attributes": sum(len(_attributes(one) - _inherited(one, live)) for one in live),
        "run_callbacks": sum(len(_callbacks(one)) for one in live),
        "event_loops": sum(_reads_events(node) for module in modules for node in ast.walk(module.tree)),
        "names_twice": sum(count > 1 for count in names.values()),
        "names_thrice": sum(count > 2 for count in names.values()),
        "store_methods": _width(modules, "store.base", "Store"),
        "cluster_store_methods": _width(modules, "store.cluster", "ClusterStore"),
        "run_service_methods": _width(modules, "runs.run_service", "RunService"),
        "dialect_classes": sum(len(_classes(module)) for module in modules if module.name.endswith(".dialects.base")),
    }


def _modules(package: Path) -> Iterator[Module]:
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        yield Module(name, path, sum(1 for line in text.splitlines() if line.strip()), ast.parse(text))


def _classes(module: Module) -> list[ast.ClassDef]:
    return [node for node in module.tree.body if isinstance(node, ast.ClassDef)]


def _import_lines(module: Module) -> int:
    found = (node for node in ast.walk(module.tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def _single_use(modules: list[Module]) -> int:
    names = {module.name for module in modules}
    importers: Counter[str] = Counter()
    for module in modules:
        found: set[str] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & names
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} & names
        importers.update(found)
    small = [one for one in modules if one.lines < 60 and one.path.stem not in ("__init__", "__main__")]
    return sum(importers[one.name] == 1 for one in small)


def _public_types(modules: list[Module]) -> Counter[str]:
    """How many modules define a class or an alias of each name."""
    aliases = (
        node.target.id
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation) == "TypeAlias"
    )
    names = [*(one.name for module in modules for one in _classes(module)), *aliases]
    return Counter(name for name in names if not name.startswith("_"))


def _attributes(one: ast.ClassDef) -> set[str]:
    """What its methods assign to `self`, and the fields of a struct."""
    assigned = {
        node.attr
        for node in ast.walk(one)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    fields = {
        node.target.id for node in one.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return assigned | fields


def _inherited(one: ast.ClassDef, others: list[ast.ClassDef]) -> set[str]:
    bases = {ast.unparse(base) for base in one.bases}
    return {name for other in others if other.name in bases for name in _attributes(other)}


def _callbacks(one: ast.ClassDef) -> set[str]:
    """Attributes that begin as a lambda that does nothing, until somebody sets them."""
    return {
        ast.unparse(node.target)
        for node in ast.walk(one)
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Lambda)
    }


def _reads_events(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("reader.next")


def _width(modules: list[Module], module_name: str, class_name: str) -> int:
    (found,) = [
        one
        for module in modules
        if module.name == f"cursor_gateway.{module_name}"
        for one in _classes(module)
        if one.name == class_name
    ]
    methods = [node for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(not method.name.startswith("_") for method in methods)


def shown(number: float) -> str:
    return f"{number:,.1f}" if number != int(number) else f"{number:,.0f}"


@click.command()
@click.option("--check", is_flag=True, help="Fail if a figure is above its limit.")
@click.option("--write", is_flag=True, help="Make today's figures the limits.")
@click.option("--root", type=click.Path(path_type=Path), default=_ROOT, help="Another checkout to count.")
def main(check: bool, write: bool, root: Path) -> None:
    now, limit = measure(root), limits()
    if write:
        rows = [f"{name} = {now.get(name, limit[name]):g}\n" for name in FIGURES]
        _LIMITS.write_text("# The limits of tools/structure.py, which `make check` keeps.\n" + "".join(rows), "utf-8")
        return
    above = {name: found for name, found in now.items() if found > limit[name]}
    if not check:
        click.echo(f"{'':75} {'before':>8} {'now':>8} {'limit':>8} {'target':>8}")
        for name, (meaning, *_) in FIGURES.items():
            numbers = (FIGURES[name].before, now.get(name, limit[name]), limit[name], FIGURES[name].target)
            click.echo(f"{meaning:75} " + " ".join(f"{shown(number):>8}" for number in numbers))
    for name, found in above.items():
        click.echo(f"{FIGURES[name].meaning}: {shown(found)}, and at most {shown(limit[name])} are allowed", err=True)
    raise SystemExit(1 if above else 0)


if __name__ == "__main__":
    main()
