"""Copy the user's cursor-agent configuration for one conversation.

`--model` rewrites the configuration, which would change the user's later runs, so each conversation gets its own
copy. The copy keeps its path for as long as the conversation lives, because the agent stores its chats in it. Rules
that a user allowed are added to the copy alone, and only for one run at a time.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from cursor_gateway.errors import AgentMisconfigured, GatewayError, host_exhausted
from cursor_gateway.sources.private_files import PathOrText, private_folder, read_private, remove_entry, write_private

SETTINGS = "cli-config.json"
HOOKS = "hooks.json"
_DEFAULT_ALLOW = ("Shell(ls)",)  # of an agent without settings
_LARGEST = 4 * 1024 * 1024  # settings, MCP servers and logins are small; skip larger files


def user_configuration(environ: Mapping[str, str]) -> Path:
    """The folder that the agent itself would use."""
    if given := environ.get("CURSOR_CONFIG_DIR"):
        return Path(given)
    if (base := environ.get("XDG_CONFIG_HOME")) and os.path.isdir(f"{base}/cursor"):
        return Path(f"{base}/cursor")
    return Path(os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cursor"))


def configuration_stamp(environ: Mapping[str, str]) -> frozenset[tuple[str, int, int]]:
    """Changes whenever a file of the agent's configuration or login changes."""
    base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or os.path.expanduser('~')}/.config"
    stamps = set()
    for folder in {user_configuration(environ), Path(base) / "cursor"}:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file():
                    file = entry.stat()
                    stamps.add((entry.path, file.st_mtime_ns, file.st_size))
    return frozenset(stamps)


def copy_configuration(original: PathOrText, copy: PathOrText, data: PathOrText, without: Collection[str] = ()) -> None:
    """Copies the top-level files; subfolders hold chats and caches. Other files already in the copy are kept.

    `data` is the gateway's data directory, which contains the copy. Raises `AgentMisconfigured`, `HostExhausted`.
    """
    try:
        with private_folder(data, copy) as folder, _entries(original) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another agent's temporary file, deleted in the meantime
                    if entry.name not in without and os.path.isfile(entry) and entry.stat().st_size <= _LARGEST:
                        write_private(folder, entry.name, _read(entry.path))
    except OSError as error:
        raise unusable(error) from error


def _entries(folder: PathOrText) -> AbstractContextManager[Iterable["os.DirEntry[str]"]]:
    """Empty if there is no such folder."""
    try:
        return os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return nullcontext(())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def set_rules(original: PathOrText, copy: PathOrText, data: PathOrText, rules: Sequence[str]) -> None:
    """Allows what the original's settings allow, and these rules. What they deny stays denied.

    The copy may have the rules of an earlier run. Raises as `copy_configuration`.
    """
    settings = read_settings(copy, data)
    if not rules and "permissions" not in settings:
        return
    own, allowed = _permissions(original), own_rules(original)
    wanted = {**own, "allow": [*allowed, *(rule for rule in rules if rule not in allowed)]}
    wanted.setdefault("deny", [])
    if settings.get("permissions") == wanted:
        return
    try:
        with private_folder(data, copy) as folder:
            write_private(folder, SETTINGS, encode_settings({"version": 1, **settings, "permissions": wanted}))
    except OSError as error:
        raise unusable(error) from error


def remove_hooks(original: PathOrText, copy: PathOrText, data: PathOrText) -> None:
    """Removes hooks from the copy that the original lacks: of an earlier turn. Raises as `copy_configuration`."""
    if os.path.lexists(f"{copy}/{HOOKS}") and not os.path.isfile(f"{original}/{HOOKS}"):
        try:
            with private_folder(data, copy) as folder:
                remove_entry(folder, HOOKS)
        except OSError as error:
            raise unusable(error) from error


def own_rules(original: PathOrText) -> list[str]:
    """What the original's settings allow."""
    allowed = _permissions(original).get("allow")
    return allowed if isinstance(allowed, list) else list(_DEFAULT_ALLOW)


def _permissions(original: PathOrText) -> dict[str, Any]:
    found = read_settings(original).get("permissions")
    return found if isinstance(found, dict) else {}


def read_settings(configuration: PathOrText, data: PathOrText | None = None) -> dict[str, Any]:
    """`data` is the gateway's data directory, if they are in it: an agent may have replaced the file by a link."""
    path = f"{configuration}/{SETTINGS}"
    try:
        return msgspec.json.decode(_read(path) if data is None else read_private(data, path), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    except OSError as error:  # also what the agent itself could not read
        if data is None and not isinstance(error, FileNotFoundError):
            raise
        return {}


def encode_settings(settings: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(settings))


def unusable(error: OSError) -> GatewayError:
    return host_exhausted(error) or AgentMisconfigured(
        f"The agent's configuration cannot be copied: {error.strerror}; make it readable.",
        details=str(error.filename),
    )
