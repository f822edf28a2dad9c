"""Does each pure module's own test file reach all of that module, alone? `python -m tools.own_coverage [MODULE…]`

Coverage of the whole suite hides a module that only other modules' tests touch. Here the test files of
each module run by themselves, and every line and branch of its module must be reached. A module of nothing but
declarations needs no tests of its own.
"""

import ast
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import coverage  # noqa: F401 -- with the others, loaded before the first fork; nothing of cursor_gateway may be
import hypothesis.strategies  # noqa: F401
import msgspec  # noqa: F401
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "cursor_gateway"
AT_ONCE = 2

PURE = [
    "errors.py",
    "keys.py",
    "reader.py",
    "settings.py",
    "wire/*.py",
    "model/*.py",
    "markdown/*.py",
    "stages/*.py",
    "prompting/*.py",
    "dialects/**/*.py",
    *(f"runs/{name}.py" for name in ("machine", "calls")),
    *(f"workspace/{name}.py" for name in ("git_objects", "ignore_rules")),
    *(f"http1/{name}.py" for name in ("requests", "responses")),
    "cli/clients/*.py",
    *(f"acp_server/{name}.py" for name in ("prompts", "questions", "updates")),
    *(f"mcp_server/{name}.py" for name in ("elicitation", "messages", "peers", "results", "tasks", "tools")),
    *(f"client/{name}.py" for name in ("calls", "failures", "following", "steps")),
    *(
        f"sources/cursor/{name}.py"
        for name in ("ask_user", "tools", "native_requests", "command", "records", "failures", "permissions")
    ),
    *(f"sources/cli/{name}.py" for name in ("reconcile", "decoder")),
    *(f"sources/acp/{name}.py" for name in ("decoder", "calls", "models")),
    *(f"sources/sdk/{name}.py" for name in ("decoder", "failures", "requests")),
]

_OF_OTHER_SOURCES = {"acp": "acp_", "sdk": "sdk_"}  # their tests stand beside those of the first


class Module(NamedTuple):
    name: str
    source: Path
    tests: list[Path]  # `test_<module>.py`, and `test_<module>_….py` for its parts


def modules() -> Iterator[Module]:
    for pattern in PURE:
        for source in sorted(PACKAGE.glob(pattern)):
            if source.stem != "__init__" and _does_something(source):
                path = source.relative_to(PACKAGE)
                folder = "sources" if path.parts[0] == "sources" else path.parent
                which = _OF_OTHER_SOURCES.get(path.parent.name, "")
                yield Module(
                    name=".".join(["cursor_gateway", *path.with_suffix("").parts]),
                    source=source,
                    tests=_tests(ROOT / "tests" / folder, source, f"test_{which}{source.stem}"),
                )


def _tests(folder: Path, source: Path, name: str) -> list[Path]:
    others = {f"test_{other.stem}" for other in source.parent.glob("*.py")} - {name}
    return [path for path in [folder / f"{name}.py", *sorted(folder.glob(f"{name}_*.py"))] if path.stem not in others]


def _does_something(source: Path) -> bool:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for node in ast.walk(tree))


def proven_complete(source: str) -> set[int]:
    """Lines of the last case of each `match` without a wildcard. mypy's exhaustive-match proves that one of the cases
    is taken, so the way past the last one is no branch that a test could reach."""
    found, lines = set(), source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Match):
            last = node.cases[-1]
            is_wildcard = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
            if not is_wildcard and last.guard is None:
                first = last.pattern.lineno
                found.add(first if lines[first - 1].lstrip().startswith("case ") else first - 1)  # after `case (`
    return found


def unreached(report: dict[str, Any], source: str) -> list[str]:
    """What a coverage report (JSON, of one module) misses: lines as `12`, branches as `12->15`."""
    if not report["files"]:
        return ["anything of it"]
    (file,) = report["files"].values()
    complete = proven_complete(source)
    lines = [str(line) for line in file["missing_lines"]]
    missing = set(file["missing_lines"])
    branches = [
        f"{start}->{'exit' if end < 0 else end}"
        for start, end in file["missing_branches"]
        if start not in complete and start not in missing and end not in missing
    ]
    return lines + branches


def complaint(module: Module) -> str:
    """What is wrong with this module's own tests; empty when nothing is."""
    tests = [str(test.relative_to(ROOT)) for test in module.tests]
    test = tests[0]
    if not module.tests[0].exists():
        return f"{module.name}: {test} does not exist"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        arguments = [*tests, "-q", "--no-header", "--assert=plain", "--hypothesis-profile=quick"]
        arguments += ["-p", "no:cacheprovider", "-p", "no:xdist"]
        arguments += [f"--cov={module.name}", "--cov-branch", f"--cov-report=json:{report}"]
        os.environ["COVERAGE_FILE"] = str(Path(folder, "data"))
        status, output = _ran(arguments, Path(folder, "output"))
        if not report.exists():
            return f"{module.name}: {test} could not be run\n{output}"
        missed = unreached(json.loads(report.read_text(encoding="utf-8")), module.source.read_text(encoding="utf-8"))
    complaints = [f"{module.name}: {test} does not reach {', '.join(missed)}"] if missed else []
    if status != 0:
        failures = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        complaints.append("\n".join([f"{module.name}: {test} fails", *failures]))
    return "\n".join(complaints)


def _ran(arguments: list[str], log: Path) -> tuple[int, str]:
    """pytest in this process, which has been forked for it: half of the time would be imports otherwise."""
    with log.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    status = int(pytest.main(arguments))
    sys.stdout.flush()
    return status, log.read_text(encoding="utf-8", errors="replace")


def main(chosen: list[str]) -> int:
    wanted = [module for module in modules() if not chosen or module.name in chosen]
    unknown = set(chosen) - {module.name for module in wanted}
    if unknown:
        sys.stderr.write(f"no pure module: {', '.join(sorted(unknown))}\n")
        return 2
    os.chdir(ROOT)
    with get_context("fork").Pool(AT_ONCE, maxtasksperchild=1) as pool:
        complaints = [text for text in pool.map(complaint, wanted, chunksize=1) if text]
    for text in complaints:
        sys.stdout.write(f"{text}\n")
    good = len(wanted) - len(complaints)
    sys.stdout.write(f"{good} of {len(wanted)} modules are covered by their own tests\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
