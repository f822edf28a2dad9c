"""`make deploy-check`: the files in `deploy/` in; what is wrong with them out.

No container engine is needed. The Dockerfile is linted, and the commands of its build stage are run in a folder that
has only the files that it copies; the chart is rendered and checked against Kubernetes' schemas; the units are checked
by systemd.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "cursor-gateway"
PREFIX = "/opt/cursor-gateway"
KUBERNETES = "1.31"

# --- the chart --------------------------------------------------------------------------------------

_RANGE = re.compile(r"range \$(\w+), \$(\w+) := (\S+)")


class Unsupported(Exception):
    """The chart uses more of Helm's language than is understood here."""


def render(template: str, values: Mapping[str, Any], release: str = "gateway") -> str:
    """The small part of Helm's language that the chart uses: values, `quote`, `toJson`, `add`, `if`, `else`,
    `range`."""
    context = {"Values": values, "Release": {"Name": release}}
    out, rest, _ = _block(template, context)
    if rest:
        raise Unsupported(f"an `end` too many before {rest[:40]!r}")
    return out


def _block(text: str, context: Mapping[str, Any]) -> tuple[str, str, str]:
    """What stands before the matching `else` or `end`, rendered, what follows it, and which of the two it was."""
    out = ""
    while (tag := re.search(r"\{\{(-?)\s*(.*?)\s*\}\}", text)) is not None:
        before, text = text[: tag.start()], text[tag.end() :]
        out += before.rstrip() if tag[1] else before
        words = tag[2]
        if words in ("else", "end"):
            return out, text, words
        if words.startswith("if "):
            inside, text, closed_by = _block(text, context)
            otherwise = ""
            if closed_by == "else":
                otherwise, text, _ = _block(text, context)
            out += inside if _value(words[3:], context) else otherwise
        elif (loop := _RANGE.fullmatch(words)) is not None:
            after = text
            items = _value(loop[3], context)
            _, after, _ = _block(text, {**context, loop[1]: "", loop[2]: ""})
            for key in sorted(items):
                out += _block(text, {**context, loop[1]: key, loop[2]: items[key]})[0]
            text = after
        else:
            out += _expression(words, context)
    return out + text, "", ""


def _expression(words: str, context: Mapping[str, Any]) -> str:
    name, *filters = (word.strip() for word in words.split("|"))
    if name.startswith("add "):
        _, name, number = name.split()
        return str(_value(name, context) + int(number))
    value = _value(name, context)
    match filters:
        case []:
            return str(value)
        case ["quote"] | ["toJson"]:
            return json.dumps(value if filters == ["toJson"] else str(value))
        case _:
            raise Unsupported(words)


def _value(name: str, context: Mapping[str, Any]) -> Any:
    found: Any = context
    for part in name.lstrip(".$").split("."):
        if part not in found:
            raise Unsupported(f"{name} is not among the values")
        found = found[part]
    return found


# --- the image --------------------------------------------------------------------------------------


def instructions(dockerfile: str, stage: str) -> Iterator[tuple[str, str]]:
    """Of one stage, as names and arguments; continued lines are joined."""
    inside = False
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", dockerfile))
    for line in joined.splitlines():
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            inside = arguments.endswith(f" AS {stage}")
        elif inside and name:
            yield name, arguments.strip()


def build(folder: Path) -> Path:
    """Runs the build stage: the environment that the image will have."""
    prefix, work = folder / "prefix", folder / "build"
    work.mkdir()
    for name, arguments in instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"), "build"):
        if name == "COPY":
            *sources, target = arguments.split()
            for source in sources:
                _copy(
                    ROOT / source, work / target / Path(source).name if target.endswith(("/", ".")) else work / target
                )
        elif name == "RUN":
            subprocess.run(["sh", "-euc", arguments.replace(PREFIX, str(prefix))], cwd=work, check=True)
    return prefix


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


# --- checks -----------------------------------------------------------------------------------------


@click.command()
def main() -> None:
    """Check the files in deploy/."""
    _run("hadolint", str(DEPLOY / "Dockerfile"))
    _run(
        "yamllint",
        "--strict",
        "-d",
        "{extends: relaxed, rules: {line-length: {max: 150}}}",
        str(DEPLOY / "compose.yaml"),
    )
    _check_chart()
    _check_units()
    _check_image()
    click.echo("The files in deploy/ are in order.")


def _check_chart() -> None:
    import yaml  # type: ignore[import-untyped] # in the environment of this check

    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    more = {
        **values,
        "environment": {"CURSOR_GATEWAY_MODEL": "auto"},
        "runner": {
            **values["runner"],
            "volume": "shared",
            "storageClass": "nfs",
            "separateUser": False,
            "maxReplicas": 9,
        },
    }
    isolated = {**values, "runner": {**values["runner"], "storageClass": "fast", "runtimeClass": "cgroups"}}
    with tempfile.TemporaryDirectory() as folder:
        for name, chosen in (("default", values), ("more", more), ("isolated", isolated)):
            for template in sorted((CHART / "templates").glob("*.yaml")):
                rendered = Path(folder) / f"{name}-{template.name}"
                rendered.write_text(render(template.read_text(encoding="utf-8"), chosen), encoding="utf-8")
                _run("kubernetes-validate", "--strict", "--kubernetes-version", KUBERNETES, str(rendered))


def _check_units() -> None:
    if shutil.which("systemd-analyze") is None:
        click.echo("systemd-analyze is not here: the units are not checked.")
        return
    with tempfile.TemporaryDirectory() as folder:
        for unit in sorted((DEPLOY / "systemd").glob("*.service")):
            # Its program is not installed here; everything else is as it is.
            text = unit.read_text(encoding="utf-8").replace(f"{PREFIX}/bin/cursor-gateway", sys.executable)
            (Path(folder) / unit.name).write_text(text, encoding="utf-8")
            _run("systemd-analyze", "verify", "--man=no", str(Path(folder) / unit.name))


def _check_image() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = build(Path(folder))
        for command in (["cursor-gateway", "--version"], ["python", "-c", "import psycopg, uvloop"]):
            _run(str(prefix / "bin" / command[0]), *command[1:])


def _run(program: str, *arguments: str) -> None:
    beside = Path(sys.executable).parent / program
    subprocess.run([str(beside) if beside.exists() else program, *arguments], check=True)


if __name__ == "__main__":
    main()
