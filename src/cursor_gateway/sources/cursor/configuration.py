"""The user's configuration of cursor-agent in; a copy that a run may change out.

`--model` rewrites the configuration and so changes the user's later runs: each conversation has a copy of its
own. It stays at one path as long as the conversation, because the agent keeps its chats in there.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from cursor_gateway.errors import AgentMisconfigured, GatewayError, host_exhausted
from cursor_gateway.sources.private_files import private_folder, write_private

_LARGEST = 4 * 1024 * 1024  # settings, MCP servers and a login are small; what is not is none of these


def user_configuration(environ: Mapping[str, str]) -> Path:
    """Where the agent itself would look."""
    if given := environ.get("CURSOR_CONFIG_DIR"):
        return Path(given)
    if (base := environ.get("XDG_CONFIG_HOME")) and (Path(base) / "cursor").is_dir():
        return Path(base) / "cursor"
    return Path(environ.get("HOME") or os.path.expanduser("~")) / ".cursor"


def configuration_stamp(environ: Mapping[str, str]) -> frozenset[tuple[str, int, int]]:
    """Another value whenever a file of the agent's configuration, or of its login, has changed."""
    base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or os.path.expanduser('~')}/.config"
    stamps = set()
    for folder in {user_configuration(environ), Path(base) / "cursor"}:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file():
                    file = entry.stat()
                    stamps.add((entry.path, file.st_mtime_ns, file.st_size))
    return frozenset(stamps)


def copy_configuration(original: Path, copy: Path, data: Path, without: Collection[str] = ()) -> None:
    """The files at the top; the folders beside them hold chats and caches. What the copy has besides, stays.

    `data` is the gateway's own directory, below which the copy is. Raises `AgentMisconfigured`, `HostExhausted`.
    """
    try:
        with private_folder(data, copy) as folder:
            if not os.path.isdir(original):
                return
            for entry in original.iterdir():
                with suppress(FileNotFoundError):  # another agent's temporary file, gone meanwhile
                    if entry.name not in without and entry.is_file() and entry.stat().st_size <= _LARGEST:
                        write_private(folder, entry.name, entry.read_bytes())
    except OSError as error:
        raise unusable(error) from error


def unusable(error: OSError) -> GatewayError:
    return host_exhausted(error) or AgentMisconfigured(
        f"The agent's configuration cannot be copied: {error.strerror}; make it readable.",
        details=str(error.filename),
    )
