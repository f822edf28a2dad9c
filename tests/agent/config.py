"""The environment and the files below the configuration directory in; model, permissions and trust out.

Passing `--model` rewrites `cli-config.json`, so that later runs without it use the same model.
"""

import json
import os
import re
import time
from _collections_abc import Iterable  # without `collections`, which takes longer
from _thread import get_ident  # `threading` would take longer to import


def write_whole(path: str, data: object) -> None:
    """At once: another turn may be reading, or writing the same."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    beside = f"{path}.{os.getpid()}.{get_ident()}"
    with open(beside, "w", encoding="utf-8", errors="surrogatepass") as file:
        json.dump(data, file, indent=2)
    os.replace(beside, path)


def read_json(path: str) -> dict[str, object]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def below(data: object, *names: str) -> object:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


class Permissions:
    """Rules like `Shell(git)`, `Write(src/**)`, `Mcp(server:tool)`; what is denied is never allowed."""

    def __init__(self, allow: list[str], deny: list[str], unrestricted: bool) -> None:
        self._allow = allow
        self._deny = deny
        self.unrestricted = unrestricted

    def permits(self, kind: str, subject: str) -> bool:
        return not self.denies(kind, subject) and (self.unrestricted or _any_matches(self._allow, kind, subject))

    def denies(self, kind: str, subject: str) -> bool:
        return _any_matches(self._deny, kind, subject)

    def permits_shell(self, commands: list[str]) -> bool:
        """Each of the simple commands that a line is made of."""
        return bool(commands) and all(self.permits("Shell", command) for command in commands)


def _any_matches(rules: list[str], kind: str, subject: str) -> bool:
    found = [re.fullmatch(r"(\w+)\((.*)\)", rule, re.DOTALL) for rule in rules]
    return any(_matches(kind, rule[2], subject) for rule in found if rule and rule[1] == kind)


def _matches(kind: str, pattern: str, subject: str) -> bool:
    if kind != "Shell":
        return _glob(pattern, subject)
    pattern = pattern.replace(":", " ", 1).removesuffix(" *")  # Shell(curl:*) and Shell(curl) are one
    return _glob(pattern, subject) or _glob(f"{pattern} *", subject)


def _glob(pattern: str, subject: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, re.split(r"\*+/?", pattern))), subject, re.DOTALL) is not None


class Toolset:
    """What `--allowed-tools` and `--exclude-tools` leave: names like `web_fetch`, with or without `_tool_call`."""

    def __init__(self, allowed: Iterable[str] | None = None, excluded: Iterable[str] = ()) -> None:
        self._allowed = None if allowed is None else _tool_names(allowed)
        self._excluded = _tool_names(excluded)

    def has(self, tool: str) -> bool:
        """`tool` as the wire has it: `webFetch`. What writes whole files is a part of `edit`."""
        name = "edit" if tool == "write" else re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", tool)
        return name not in self._excluded and (self._allowed is None or name in self._allowed)


def _tool_names(given: Iterable[str]) -> set[str]:
    return {name.strip().removesuffix("_tool_call") for names in given for name in names.split(",")}


class Config:
    def __init__(self, directory: str, workspace: str) -> None:
        self.directory = directory
        self._workspace = workspace
        self._path = os.path.join(directory, "cli-config.json")
        self._data = read_json(self._path)

    @property
    def model(self) -> str:
        id = below(self._data, "model", "modelId")
        return id if isinstance(id, str) else "auto"

    def select_model(self, id: str, label: str) -> None:
        names = {"displayModelId": id, "displayName": label, "displayNameShort": label}
        model = {"modelId": id, **names, "aliases": [], "maxMode": False}
        defaults = {"version": 1, "permissions": {"allow": ["Shell(ls)"], "deny": []}}
        self._data = {**defaults, **self._data, "model": model, "hasChangedDefaultModel": True}
        write_whole(self._path, self._data)

    def permissions(self, force: bool, *, ignores_deny: bool = False) -> Permissions:
        project = read_json(os.path.join(self._workspace, ".cursor", "cli.json"))
        rules: dict[str, list[str]] = {"allow": [], "deny": []}
        for data in (self._data, project):
            for kind, found in rules.items():
                given = below(data, "permissions", kind)
                found += [str(rule) for rule in given] if isinstance(given, list) else []
        if below(self._data, "permissions") is None:
            rules["allow"].append("Shell(ls)")  # the program's own default
        if ignores_deny:  # a build that lets the agent's own tools do what they like
            rules = {"allow": [*rules["allow"], "Shell(*)", "WebFetch(*)"], "deny": []}
        return Permissions(**rules, unrestricted=force or below(self._data, "approvalMode") == "unrestricted")

    @property
    def trusted(self) -> bool:
        return os.path.exists(self._marker)

    def trust(self) -> None:
        write_whole(self._marker, {"workspacePath": self._workspace, "trustedAt": int(time.time() * 1000)})

    @property
    def _marker(self) -> str:
        slug = re.sub(r"[^A-Za-z0-9]+", "-", self._workspace).strip("-")
        return os.path.join(self.directory, "projects", slug, ".workspace-trusted")
