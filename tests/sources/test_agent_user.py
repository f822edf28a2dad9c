"""Agents that run as another user than the gateway: who may, what they share, and what they cannot reach."""

import asyncio
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.errors import SettingsError
from cursor_gateway.settings import Settings
from cursor_gateway.sources import agent_user
from cursor_gateway.sources.acp.source import AcpOptions, CursorAcpSource
from cursor_gateway.sources.agent_user import AgentUser, find_agent_user
from cursor_gateway.sources.cli.source import CliOptions, CursorCliSource
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.leftovers import NotedSession, delete_users_sessions, note_session
from cursor_gateway.sources.private_files import SHARED, private_folder, write_private
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import chat, eventually, http_client, text_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's capabilities")

ME = pwd.getpwuid(os.getuid())
ALL = 2**41 - 1  # capabilities


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# --- who ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that is not root, has what it needs, and is in every group."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(os, "getgroups", lambda: [pwd.getpwnam("nobody").pw_gid])
    monkeypatch.setattr(agent_user, "_effective", lambda: ALL)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def refusal(name: str = "nobody") -> str:
    with pytest.raises(SettingsError) as caught:
        find_agent_user(name)
    assert caught.value.param == "agent_user"
    return str(caught.value)


def test_a_user_is_found_by_name(ordinary: None) -> None:
    nobody = pwd.getpwnam("nobody")
    assert find_agent_user("nobody") == AgentUser("nobody", nobody.pw_uid, nobody.pw_gid, nobody.pw_dir)


def test_an_unknown_user_is_refused(ordinary: None) -> None:
    assert "there is no user 'no-such-user'; create it" in refusal("no-such-user")


def test_root_starts_no_agents_for_others(ordinary: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "runs as root; run it as a user of its own" in refusal()


def test_agents_are_neither_root_nor_the_gateway_itself(ordinary: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is root, or the gateway's own user" in refusal("root")
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    assert "is root, or the gateway's own user" in refusal()


def test_what_the_gateway_lacks_is_named(ordinary: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_user, "_effective", lambda: ALL & ~(1 << 5 | 1 << 7))
    assert "lacks CAP_KILL, CAP_SETUID;" in refusal()
    monkeypatch.setattr(agent_user, "_effective", lambda: ALL)
    monkeypatch.setattr(os, "getegid", lambda: pwd.getpwnam("nobody").pw_gid)
    assert "has the gateway's own group" in refusal()
    monkeypatch.setattr(os, "getgroups", list)
    monkeypatch.setattr(os, "getegid", lambda: 4711)
    assert "is not in the group" in refusal()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "needs Linux, and `setpriv`" in refusal()


def test_the_capabilities_of_this_process_are_read() -> None:
    assert bool(agent_user._effective() >> 7 & 1) == (os.geteuid() == 0)


def test_an_agent_gets_the_environment_of_its_user() -> None:
    user = AgentUser("agent", 1001, 1001, "/home/agent")
    given = {
        "HOME": "/home/gateway",
        "USER": "gateway",
        "LOGNAME": "gateway",
        "XDG_RUNTIME_DIR": "/run/user/1",
        "CURSOR_CONFIG_DIR": "/home/gateway/.cursor",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1/bus",
        "PATH": "/usr/bin",
    }
    assert user.environment(given) == {"HOME": "/home/agent", "USER": "agent", "LOGNAME": "agent", "PATH": "/usr/bin"}


def test_the_sdk_is_refused() -> None:
    from cursor_gateway.cli.assembly.sources import unsupported

    assert "agent_user" in unsupported("sdk", Settings(agent_user="nobody"))
    assert not unsupported("acp", Settings(agent_user="nobody"))


# --- what they share ------------------------------------------------------------------------------------------


def test_shared_folders_are_the_groups_and_the_rest_is_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    user = AgentUser("agent", ME.pw_uid, ME.pw_gid, "/home/agent")
    folders = [data / "conversations", data / "instances" / "one" / "acp"]
    user.share(data, folders)
    assert [mode(folder) for folder in folders] == [SHARED] * 2
    assert [mode(place) for place in (data, data / "instances", data / "instances" / "one")] == [0o710] * 3
    with private_folder(data, folders[0] / "conv_1" / "images") as opened:
        write_private(opened, "a.png", b"image")
    with private_folder(data, data / "own") as opened:
        write_private(opened, "x", b"private")
    shared = folders[0] / "conv_1"
    assert (mode(shared), mode(shared / "images"), mode(shared / "images" / "a.png")) == (SHARED, SHARED, 0o660)
    assert (mode(data / "own"), mode(data / "own" / "x")) == (0o700, 0o600)


def test_what_was_there_before_is_shared_as_well_but_links_are_left_alone(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    outside.write_text("secret")
    outside.chmod(0o600)
    with private_folder(data, data / "conversations" / "conv_1" / "cursor") as opened:
        write_private(opened, "cli-config.json", b"{}")
    (data / "conversations" / "conv_1" / "link").symlink_to(outside)
    AgentUser("agent", ME.pw_uid, ME.pw_gid, "/home/agent").share(data, [data / "conversations"])
    old = data / "conversations" / "conv_1"
    assert (mode(old), mode(old / "cursor"), mode(old / "cursor" / "cli-config.json")) == (SHARED, SHARED, 0o660)
    assert mode(outside) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose any group")
def test_folders_of_another_group_are_shared_anew(tmp_path: Path) -> None:
    data, user = tmp_path / "data", AgentUser("agent", ME.pw_uid, 4711, "/home/agent")
    AgentUser("agent", ME.pw_uid, 4712, "/home/agent").share(data, [data / "conversations"])
    with private_folder(data, data / "conversations" / "conv_1") as opened:
        write_private(opened, "x", b"")
    user.share(data, [data / "conversations"])
    shared = [data, data / "conversations", data / "conversations" / "conv_1", data / "conversations" / "conv_1" / "x"]
    assert [path.stat().st_gid for path in shared] == [4711] * 4


@pytest.fixture
def other() -> Iterator[AgentUser]:
    """A user whose home only it can enter."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can start a program as another user")
    nobody = pwd.getpwnam("nobody")
    home = Path(tempfile.mkdtemp(prefix="it's a home-"))
    home.chmod(0o700)
    shutil.chown(home, nobody.pw_uid)
    yield AgentUser("nobody", nobody.pw_uid, nobody.pw_gid, str(home))
    shutil.rmtree(home)


SESSION, ANOTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def kept_by(user: AgentUser, session: str) -> list[Path]:
    """What an agent keeps of a session in its user's home."""
    configuration = Path(user.home, ".cursor")
    places = [
        configuration / "projects" / "p q" / "agent-transcripts",
        configuration / "projects" / ".p" / "agent-transcripts",
        configuration / "chats" / "x",
        configuration / "acp-sessions",
    ]
    for place in places:
        (place / session).mkdir(parents=True)
        (place / session / "a file").touch()
    for path in (configuration, *configuration.rglob("*")):
        shutil.chown(path, user.uid)
        path.chmod(0o700)
    return [place / session for place in places]


def test_what_is_in_the_home_of_the_agents_user_is_deleted_as_that_user(other: AgentUser, tmp_path: Path) -> None:
    gone, kept = kept_by(other, SESSION), kept_by(other, ANOTHER)
    (tmp_path / "cursor" / "chats" / "x" / SESSION).mkdir(parents=True)
    source = CursorCliSource(CliOptions(user=other), {"PATH": "/usr/bin:/bin"}, Ledger(tmp_path), time.monotonic)
    assert asyncio.run(source.forget(str(tmp_path)))
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)


def test_also_those_of_a_shared_agent(other: AgentUser, tmp_path: Path) -> None:
    environ, ledger, gone = {"PATH": "/usr/bin:/bin"}, Ledger(tmp_path / "instances"), kept_by(other, SESSION)
    note_session(tmp_path / "data" / "conv", tmp_path / "data", NotedSession("acp", SESSION, "/w"))
    cli = CursorCliSource(CliOptions(user=other), environ, ledger, time.monotonic)
    source = CursorAcpSource(AcpOptions(user=other), cli, tmp_path / "acp", environ, ledger)
    assert asyncio.run(source.forget(str(tmp_path / "data" / "conv")))
    assert not any(path.exists() for path in gone)


def test_but_nothing_that_is_not_that_users(other: AgentUser, tmp_path: Path) -> None:
    """A link that an agent has planted leads to what another user owns, which then stays."""
    place = Path(tempfile.mkdtemp(prefix="theirs-"))
    place.chmod(0o755)
    try:
        Path(other.home, ".cursor").symlink_to(place)
        theirs = place / "chats" / "x" / SESSION
        theirs.mkdir(parents=True)
        assert not delete_users_sessions([SESSION], {}, other)
        assert theirs.exists()
    finally:
        shutil.rmtree(place)
    assert delete_users_sessions([f"; touch {tmp_path}/made", "*"], {}, other)  # no ids
    assert not (tmp_path / "made").exists()


def test_very_many_sessions_are_deleted_in_parts(other: AgentUser) -> None:
    """The agent decides how many there are; an argument of a program has at most 128 kB."""
    gone = kept_by(other, SESSION)
    assert delete_users_sessions([*(f"{number:032}" for number in range(1000)), SESSION], {}, other)
    assert not any(path.exists() for path in gone)


# --- with real users ------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
AGENT = r"""#!/bin/sh
case "$*" in
*--version*) echo 2026.10.01-abc1234; exit;;
*--help*) echo "Cursor Agent --print --workspace --trust --resume --add-dir"; exit;;
*--list-models*) echo "auto - Auto"; exit;;
esac
prompt="$(cat)"
session=11111111-1111-4111-8111-111111111111
echo '{"type":"system","subtype":"init","session_id":"'$session'","model":"Auto","cwd":"/","permissionMode":"default"}'
case "$prompt" in
*hang*) trap '' TERM; echo $$ > pid; while :; do sleep 1; done;;
*images*) said="$(cat "$CURSOR_CONFIG_DIR"/../images/*.png | wc -c)";;
*reach*)
    said=nothing
    for file in "$DATA/secret" "$DATA/history.db" /proc/$PPID/environ; do
        if cat "$file" > /dev/null 2>&1; then said="$file"; fi
    done
    if ls "$DATA" > /dev/null 2>&1; then said="$DATA"; fi
    if kill -0 $PPID 2> /dev/null; then said="the gateway"; fi;;
*) said="$(id -un) $HOME $(umask) $(echo $(grep -E 'CapEff|NoNewPrivs' /proc/self/status))";;
esac
case "$*" in *"--resume $session"*) said="resumed: $said";; esac
folder="$CURSOR_CONFIG_DIR/chats/x/$session"
mkdir -p "$folder" && echo data > "$folder/store.db" && chmod 600 "$folder/store.db"
content='[{"type":"text","text":"'$said'"}]'
echo '{"type":"assistant","message":{"role":"assistant","content":'$content'},"session_id":"'$session'"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"'$said'","session_id":"'$session'"}'
"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    """Run by `daemon`, with the agents run by `nobody`: both are on every Linux."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can start a gateway as another user")
    group = pwd.getpwnam("nobody").pw_gid
    gained = "+setuid,+setgid,+kill,+dac_read_search"  # the last one, because Python may be in root's own folder
    before = [
        *("setpriv", "--reuid=daemon", "--regid=daemon", f"--groups={group}", "--no-new-privs"),
        *(f"--inh-caps={gained}", f"--ambient-caps={gained}"),
    ]
    home = Path(tempfile.mkdtemp(prefix="agent-user-"))
    try:
        for name in ("work", "data", "bin", ".cursor"):
            (home / name).mkdir()
        home.chmod(0o755)
        shutil.chown(home / "data", "daemon")
        (home / "data").chmod(0o700)
        (home / "work").chmod(0o777)
        (home / "bin" / "cursor-agent").write_text(AGENT)
        (home / "bin" / "cursor-agent").chmod(0o755)
        settings = {"agent_user": "nobody", "agent_environment": "DATA", "source": "cli"}
        environment = {"DATA": str(home / "data")}
        with running_gateway(
            home, settings=settings, environment=environment, has_agent=False, before=before
        ) as running:
            yield running
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


def test_agents_are_that_user_without_any_privileges(http: httpx2.Client) -> None:
    home = pwd.getpwnam("nobody").pw_dir
    assert text_of(chat(http, "who")) == f"nobody {home} 0007 CapEff: 0000000000000000 NoNewPrivs: 1"


def test_agents_reach_nothing_of_the_gateway(http: httpx2.Client) -> None:
    assert text_of(chat(http, "reach")) == "nothing"


def test_conversations_continue_and_are_deleted(http: httpx2.Client, gateway: RunningGateway) -> None:
    first = chat(http, "images", images=[f"data:image/png;base64,{b64encode(PNG).decode()}"])
    assert text_of(first) == str(len(PNG))
    again = chat(http, "who", conversationId=first["conversationId"])
    assert text_of(again).startswith("resumed: nobody")
    folder = gateway.data / "conversations" / first["conversationId"]
    assert folder.is_dir()
    assert http.delete(f"/v1/conversations/{first['conversationId']}").status_code == 204
    eventually(lambda: not folder.exists())


def test_an_agent_that_ignores_signals_ends_with_its_run(http: httpx2.Client, gateway: RunningGateway) -> None:
    started = http.post("/v1/chat", json={"message": "hang"}, headers={"prefer": "respond-async"})
    assert started.status_code == 202
    file = gateway.workspace / "pid"
    eventually(lambda: file.exists() and file.read_text().strip())
    pid = int(file.read_text())
    assert http.post(f"/v1/chat/{started.json()['id']}/cancel", json={}).status_code == 200
    eventually(lambda: subprocess.run(["kill", "-0", str(pid)], capture_output=True, check=False).returncode != 0)
