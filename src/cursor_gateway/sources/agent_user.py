"""The name of a user in; how agents are started as that user, and which folders it shares with the gateway, out.

Agents execute what others ask for. As another user than the gateway's, they can neither read the gateway's memory,
environment and files, nor signal it. For that, the gateway needs three capabilities: to change the user and the groups
of a process that it starts, and to signal it. `setpriv` drops them before the agent starts. The gateway itself must not
be root, which would follow any link that an agent plants.

Both users work in the folders of conversations. These belong to the agents' group, of which the gateway's user is a
member; `private_files` passes that on to what is created in them.
"""

import grp
import os
import pwd
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from cursor_gateway.errors import SettingsError
from cursor_gateway.sources.private_files import SHARED, private_folder

_CAPABILITIES = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}  # their numbers in <linux/capability.h>
_OWN_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "CURSOR_CONFIG_DIR", "CURSOR_DATA_DIR", "TMPDIR", "TMP", "TEMP")
_TRAVERSABLE = 0o710  # by the group, which cannot list it
UMASK = 0o007


class AgentUser(Struct, frozen=True):
    name: str
    uid: int
    gid: int
    home: str

    @property
    def launcher(self) -> Sequence[str]:
        """What precedes a command that is to run as this user."""
        return (
            "setpriv",
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--init-groups",
            "--inh-caps=-all",
            "--ambient-caps=-all",
            "--no-new-privs",
            "--",
        )

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Without what belongs to the gateway's own user."""
        kept = {
            name: value for name, value in environ.items() if name not in _OWN_VARIABLES and not name.startswith("XDG_")
        }
        return {**kept, "HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def share(self, data: Path, folders: Sequence[Path]) -> None:
        """Lets the user work in these folders, and reach nothing else below `data`. Raises `OSError`."""
        for folder in folders:
            with private_folder(data, folder) as opened:
                facts = os.fstat(opened)
                if facts.st_gid != self.gid or stat.S_IMODE(facts.st_mode) != SHARED:
                    self._share_contents(folder)
            for parent in folder.parents:
                if parent.is_relative_to(data) and not self._may_enter(parent):
                    os.chown(parent, -1, self.gid)
                    os.chmod(parent, _TRAVERSABLE)

    def _may_enter(self, folder: Path) -> bool:
        facts = os.stat(folder)
        return bool(facts.st_mode & (0o010 if facts.st_gid == self.gid else 0o001))

    def _share_contents(self, folder: Path) -> None:
        """Of a gateway whose agents were another user so far, or its own. Links are left alone."""
        for _, _, files, opened in os.fwalk(folder, topdown=False):  # the folder itself last: it shows that all is done
            for name in files:
                with suppress(OSError):  # a link, or a file of another user
                    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened)
                    try:
                        os.fchown(file, -1, self.gid)
                        os.fchmod(file, stat.S_IMODE(os.fstat(file).st_mode) | 0o060)
                    finally:
                        os.close(file)
            with suppress(PermissionError):
                os.fchown(opened, -1, self.gid)
                os.fchmod(opened, SHARED)


def find_agent_user(name: str) -> AgentUser:
    """Raises `SettingsError` if this process cannot start agents as that user."""
    if not sys.platform.startswith("linux") or shutil.which("setpriv") is None:
        raise _unusable(
            "it needs Linux, and `setpriv` of util-linux; leave it out to run agents as the gateway's user."
        )
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise _unusable(
            f"there is no user {name!r}; create it, for example with `useradd --create-home {name}`."
        ) from None
    if os.geteuid() == 0:
        raise _unusable("the gateway runs as root; run it as a user of its own, with the capabilities that it needs.")
    if found.pw_uid in (0, os.geteuid()):
        raise _unusable(f"{name!r} is root, or the gateway's own user; name another one.")
    if missing := [capability for capability, number in _CAPABILITIES.items() if not _effective() >> number & 1]:
        raise _unusable(f"the gateway lacks {', '.join(missing)}; set `AmbientCapabilities` in its systemd unit.")
    if found.pw_gid == os.getegid():
        raise _unusable(f"{name!r} has the gateway's own group; give it a group of its own.")
    if found.pw_gid not in os.getgroups():
        group = grp.getgrgid(found.pw_gid).gr_name
        raise _unusable(f"the gateway's user is not in the group {group!r}; add it with `usermod --append --groups`.")
    return AgentUser(name, found.pw_uid, found.pw_gid, found.pw_dir)


def _effective() -> int:
    """The capabilities of this process, as bits."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1], 16)


def _unusable(why: str) -> SettingsError:
    return SettingsError(f"agents cannot run as `agent_user`: {why}", param="agent_user")
