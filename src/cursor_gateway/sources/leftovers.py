"""What agents keep of a conversation outside its folder: noted in the folder, and deleted with it.

Most of it is in the folder, because the agent's configuration is. Agents shared by several conversations keep their
sessions elsewhere, and every agent may write a transcript to the user's own folder.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.sources.cursor.configuration import configuration_errors, user_configuration
from cursor_gateway.sources.private_files import (
    SHARED,
    PathOrText,
    data_of,
    private_folder,
    read_private,
    remove_entry,
    write_private,
)

if TYPE_CHECKING:
    from cursor_gateway.sources.agent_user import AgentUser

NOTE = "sessions.json"  # in a conversation's folder

SessionSource: TypeAlias = Literal["acp", "sdk", "cli"]  # CLI sessions are noted only if they could not be deleted

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{7,127}")  # it becomes part of a pattern and of a path
_SECONDS = 60  # to delete what is in another user's home
_AT_ONCE = 100  # paths; an argument has at most 128 kB
_PLACES = ("acp-sessions/{id}", "chats/*/{id}", "projects/*/agent-transcripts/{id}")


class NotedSession(Struct, frozen=True):
    source: SessionSource
    id: str
    workspace: str


def note_session(folder: Path, data: PathOrText, session: NotedSession) -> None:
    """Called before the session's first prompt. Raises `AgentMisconfigured`, `HostExhausted`."""
    noted = noted_sessions(folder)
    if session in noted:
        return
    with configuration_errors(), private_folder(data, folder) as opened:
        write_private(opened, NOTE, msgspec.json.encode([*noted, session]))


def noted_sessions(folder: Path, source: SessionSource | None = None) -> list[NotedSession]:
    try:
        noted = msgspec.json.decode(read_private(data_of(str(folder)), folder / NOTE), type=list[NotedSession])
    except (OSError, msgspec.DecodeError):
        return []
    return [session for session in noted if source in (None, session.source)]


def sessions_in(folder: Path) -> set[str]:
    """The sessions of agents whose configuration is in this conversation's folder."""
    found = (
        session.name
        for configuration in ("cursor", "confined")
        for place in ("chats/*/*", "acp-sessions/*")
        for session in (folder / configuration).glob(place)
    )
    return {id for id in found if _ID.fullmatch(id)}


def user_folders(environ: Mapping[str, str]) -> set[Path]:
    """The user's own folders that agents write to, whatever their configuration."""
    found = {user_configuration(environ), user_configuration({**environ, "CURSOR_CONFIG_DIR": ""})}
    if data := environ.get("CURSOR_DATA_DIR"):
        found.add(Path(data))
    return found


def delete_sessions(ids: Collection[str], folders: Iterable[Path]) -> bool:
    """Deletes their stores and transcripts below these folders; may be slow. Returns False if something is left."""
    is_done = True
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError):
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for place in _places(ids):
                    is_done = _delete(opened, *place.split("/")) and is_done
            finally:
                os.close(opened)
    return is_done


def delete_users_sessions(ids: Collection[str], environ: Mapping[str, str], user: "AgentUser | None") -> bool:
    """The same in the folders of the agents' user: None is the gateway's own.

    The gateway cannot enter another user's home, so it runs `rm` as that user, who can delete only their own files.
    """
    if user is None:
        return delete_sessions(ids, user_folders(environ))
    homes = [shlex.quote(str(folder)) for folder in user_folders(user.environment(environ))]
    paths = [f"{home}/{place}" for home in homes for place in _places(ids)]
    paths += [path.replace("/*/", "/.[!.]*/") for path in paths if "/*/" in path]  # hidden folders, too
    some = (" ".join(paths[start : start + _AT_ONCE]) for start in range(0, len(paths), _AT_ONCE))
    return all(_run([*user.launcher, "sh", "-c", f"exec rm -rf -- {these}"], environ) for these in some)


def _run(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    environment, none = {"PATH": environ.get("PATH", os.defpath)}, subprocess.DEVNULL  # agents could read all of it
    try:
        status = subprocess.call(
            command, env=environment, cwd="/", stdin=none, stdout=none, stderr=none, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return status == 0


def _places(ids: Collection[str]) -> list[str]:
    return [place.format(id=id) for id in filter(_ID.fullmatch, ids) for place in _PLACES]


def _delete(folder: int, name: str, *rest: str) -> bool:
    """What has this path below the folder; `*` is any name. No link is followed: an agent may have planted it."""
    if not rest:
        with suppress(OSError):
            remove_entry(folder, name)
        return name not in os.listdir(folder)
    is_done = True
    for found in os.listdir(folder) if name == "*" else [name]:
        with suppress(OSError):
            below = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                is_done = _delete(below, *rest) and is_done
            finally:
                os.close(below)
    return is_done


def remove_folder(folder: Path, *, is_done: bool) -> None:
    """Removes a deleted conversation's folder, but keeps a note of its sessions until all of them are deleted, too."""
    left = [] if is_done else [*noted_sessions(folder), *(NotedSession("cli", id, "") for id in sessions_in(folder))]
    if not left:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError), private_folder(folder.parent, folder) as opened:
        with suppress(OSError):  # even on a full disk, nothing that was said stays
            write_private(opened, NOTE, msgspec.json.encode(left))
        for name in os.listdir(opened):
            if name != NOTE:
                with suppress(OSError):
                    remove_entry(opened, name)


def remove_offline(folder: Path, data: Path, environ: Mapping[str, str]) -> None:
    """Without a running gateway. What the SDK keeps, or a running agent may rewrite, is left to the next gateway."""
    noted = noted_sessions(folder)
    ids = sessions_in(folder) | {session.id for session in noted}
    is_done = delete_sessions(ids, [*(data / "acp").glob("*"), *user_folders(environ)])
    is_shared = folder.is_dir() and stat.S_IMODE(folder.stat().st_mode) == SHARED  # with agents of another user
    remove_folder(folder, is_done=is_done and not noted and not is_shared)
