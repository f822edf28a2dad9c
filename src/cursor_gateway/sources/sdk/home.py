"""Make the home folder of the runtime: the user's own, with a hook of the gateway in its Cursor configuration.

The runtime reads its hooks from the home folder, and the user's own must not change. So it gets a folder of links to
what is in the user's home, except for `.cursor`, which is a folder of its own: with the gateway's hook, with links to
the user's settings if they are to be loaded, and with everything that the runtime stores. The commands that it runs get
the user's home again, from a shell that sets it.
"""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from cursor_gateway.sources.cursor.configuration import HOOKS
from cursor_gateway.sources.cursor.hooks_file import hooks_file, read_hooks
from cursor_gateway.sources.private_files import private_folder, write_private

_OWN = frozenset({HOOKS, "projects"})  # in `.cursor`
_NO_NAME = re.compile(r"[^a-zA-Z0-9]+")  # in the name that the runtime gives to a workspace
_SETTINGS = frozenset({".cursor", ".claude"})  # in a home folder


def make_home(folder: Path, socket: str, environ: Mapping[str, str], *, loads_settings: bool) -> dict[str, str]:
    """Returns the variables of the bridge's environment. Raises `OSError`."""
    user = Path(environ.get("HOME") or os.path.expanduser("~"))
    home = folder / "home"
    with private_folder(folder, home / ".cursor"):
        pass
    skipped = {".cursor"} if loads_settings else _SETTINGS
    _link(user, home, skipped)
    _link(user / ".cursor" if loads_settings else None, home / ".cursor", _OWN)
    others = read_hooks(user / ".cursor" / HOOKS) if loads_settings else {}
    with private_folder(folder, home / ".cursor") as opened:
        write_private(opened, HOOKS, hooks_file(socket, others))
    return {"HOME": str(home), "SHELL": _shell(folder, user, environ)}


def project_folders(folder: Path, environ: Mapping[str, str], workspace: str) -> list[Path]:
    """Where the runtime keeps its conversations in this workspace, and where it did with the user's own home folder."""
    name = _NO_NAME.sub("-", workspace).strip("-")
    homes = (folder / "home", Path(environ.get("HOME") or os.path.expanduser("~")))
    return [home / ".cursor" / "projects" / name for home in homes]


def write_project_hook(workspace: Path, data: str, socket: str) -> None:
    """For a workspace that is the gateway's own. Raises `OSError`."""
    with private_folder(data, workspace / ".cursor") as opened:
        write_private(opened, HOOKS, hooks_file(socket))


def _link(source: Path | None, target: Path, skipped: frozenset[str] | set[str]) -> None:
    """Makes `target` contain links to what is in `source`, and no others."""
    names = set(os.listdir(source)) - skipped if source is not None and source.is_dir() else set()
    for entry in target.iterdir():
        if entry.is_symlink() and (
            entry.name not in names or source is None or entry.readlink() != source / entry.name
        ):
            entry.unlink()
    for name in names:
        if source is not None and not os.path.lexists(target / name) and source / name != target.parent:
            (target / name).symlink_to(source / name)


def _shell(folder: Path, user: Path, environ: Mapping[str, str]) -> str:
    """A program with the name of the shell that the runtime would use; starts it with the user's home."""
    path, own = environ.get("PATH"), environ.get("SHELL") or ""
    found = own if "zsh" in own or "bash" in own else shutil.which("zsh", path=path) or shutil.which("bash", path=path)
    shell = found or own or "/bin/sh"
    text = f'#!/bin/sh\nHOME={shlex.quote(str(user))} SHELL={shlex.quote(shell)} exec {shlex.quote(shell)} "$@"\n'
    with private_folder(folder, folder / "shell") as opened:
        write_private(opened, os.path.basename(shell), text.encode())
    program = folder / "shell" / os.path.basename(shell)
    program.chmod(0o700)
    return str(program)
