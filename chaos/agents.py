"""Agents that die, hang, flood, lie and leave children behind."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
from msgspec import Struct

from chaos.place import Place, agents_of, fds_but_database, is_healthy, peak_rss_kb, rss_kb, wait_until, zombies_of
from chaos.scenarios import add_scenarios
from chaos.table import fault
from chaos.talking import Json, chat, client, connected, growing, is_whole, request, standin, text_of
from cursor_gateway.settings import Settings
from cursor_gateway.sources.base import LONGEST_LINE
from cursor_gateway.sources.processes import snapshot, start_of
from tests.agent.install import install
from tests.gateways import RunningGateway, running_gateway

_SOON = 10.0  # seconds
_SILENCE = 757.0  # seconds; the longest that was ever seen of a healthy agent
_SAID = "I was about to say more."
_MB = 1024  # in kB, which is what /proc counts in


class Setting(Struct, frozen=True):
    gateway: RunningGateway
    http: httpx2.Client
    before_kb: int  # of memory, after a first answer

    @property
    def grown_mb(self) -> float:
        """The most memory that it ever had beyond that."""
        return (peak_rss_kb(self.gateway.process.pid) - self.before_kb) / _MB


@contextmanager
def _gateway(place: Place, **settings: str) -> Iterator[Setting]:
    """With the further scenarios, warm, and with nobody left behind in the end."""
    with place.gateway(settings={"max_runs": "32", **settings}) as gateway:
        add_scenarios(gateway.home / "bin")
        assert is_healthy(gateway)
        wait_until(lambda: not agents_of(gateway), _SOON, "the first agent is gone")
        before = fds_but_database(gateway.process.pid)
        with client(gateway) as http:
            yield Setting(gateway, http, rss_kb(gateway.process.pid))
        wait_until(lambda: not agents_of(gateway), _SOON, "no agent is left")
        assert is_healthy(gateway), "it does not answer afterwards"
        wait_until(lambda: not zombies_of(gateway), _SOON, "no zombie is left")
        wait_until(lambda: fds_but_database(gateway.process.pid) <= before, _SOON, "no descriptor is left")


# --- how it failed, in the same terms for every form --------------------------------------------------


class Failed(Struct, frozen=True):
    status: int
    code: str
    text: str  # what had arrived


def _whole_failure(http: httpx2.Client, message: str) -> Failed:
    """Of a request without `stream`."""
    reply = http.post("/v1/chat", json={"message": message})
    result = reply.json()
    assert reply.status_code >= 400, result
    return Failed(reply.status_code, result["error"]["code"], text_of({"documents": result.get("documents", [])}))


def _streamed_failure(http: httpx2.Client, message: str) -> Failed:
    """After the first byte: an error document, then `done` that says so."""
    with growing(http, message) as stream:
        body = stream.rest()
        return _failed(stream.reply.status_code, body)


def _failed(status: int, body: bytes) -> Failed:
    events = [block for block in body.decode().split("\n\n") if "data: " in block]
    result = [json.loads(block.partition("data: ")[2].partition("\n")[0]) for block in events]
    assert "event: done" in events[-1], events[-1]
    assert result[-1]["status"] == "error", result[-1]
    code = next(one["metadata"]["errorCode"] for one in reversed(result) if "errorCode" in one.get("metadata", {}))
    text = "".join(one["delta"] for block, one in zip(events, result, strict=True) if "event: content_delta" in block)
    return Failed(status, code.lower(), text.partition(_SAID)[1] or text)


def _crash(setting: Setting, scenario: str) -> tuple[Failed, Failed]:
    return _whole_failure(setting.http, standin(scenario)), _streamed_failure(setting.http, standin(scenario))


# --- ends and silence ---------------------------------------------------------------------------------


@fault(
    "the agent is killed in the middle of a run",
    provoked="SIGKILL from outside while it streams; and an agent that kills itself.",
    holds="The output so far is kept. Without `stream`, the reply is a 502 `agent_crashed`; a stream ends with "
    "that error.",
)
def killed(place: Place) -> str:
    with _gateway(place) as setting:
        for _ in range(times := place.size(10, 3)):
            with growing(setting.http, standin("hang-mid")) as stream:
                stream.until(b"more.")
                for pid in agents_of(setting.gateway):
                    os.kill(pid, signal.SIGKILL)
                result = _failed(200, stream.rest())
            assert result == Failed(200, "agent_crashed", _SAID), result
        whole, _ = _crash(setting, "killed")
        assert whole == Failed(502, "agent_crashed", _SAID), whole
    return (
        f"{times} agents were killed: each stream had all {len(_SAID)} characters, then `agent_crashed`; without "
        "`stream`, the reply was a 502."
    )


@fault(
    "the agent produces no output at all",
    provoked="It hangs before its first line; `first_event_seconds` is 0.5.",
    holds="504 `agent_timed_out`, even for a stream, because nothing was sent; the agent is ended.",
)
def hung_at_once(place: Place) -> str:
    with _gateway(place, first_event_seconds="0.5") as setting:
        whole = _whole_failure(setting.http, standin("hang"))
        stream = setting.http.post("/v1/chat", json={"message": standin("hang"), "stream": True})
        assert whole == Failed(504, "agent_timed_out", ""), whole
        assert (stream.status_code, stream.json()["error"]["code"]) == (504, "agent_timed_out")
    return "504 `agent_timed_out`, streaming or not; no agent is left."


@fault(
    "the agent stops producing output in the middle of a run",
    provoked="It hangs after its first output; `idle_seconds` is 0.5.",
    holds="The output so far is kept, then 504 `agent_timed_out`; the agent is ended.",
)
def hung_in_the_middle(place: Place) -> str:
    with _gateway(place, idle_seconds="0.5") as setting:
        whole, stream = _crash(setting, "hang-mid")
        assert whole == Failed(504, "agent_timed_out", _SAID), whole
        assert stream in (Failed(200, "agent_timed_out", _SAID), Failed(504, "agent_timed_out", "")), stream
    return f"{len(_SAID)} characters, then `agent_timed_out`; no agent is left."


@fault(
    "the agent is silent for 757 s but healthy",
    provoked="Time is scaled: every timeout and the silence are divided by the same number.",
    holds="The default timeouts allow this silence; keep-alives are sent throughout; the answer is complete.",
)
def silent_but_healthy(place: Place) -> str:
    usual = Settings()
    assert usual.idle_seconds > _SILENCE, f"idle_seconds is {usual.idle_seconds}"
    assert usual.run_seconds > _SILENCE, f"run_seconds is {usual.run_seconds}"
    shorter = place.size(100, 300)
    limits = {
        "idle_seconds": f"{usual.idle_seconds / shorter}",
        "run_seconds": f"{usual.run_seconds / shorter}",
        "keep_alive_seconds": f"{usual.keep_alive_seconds / shorter}",
    }
    with _gateway(place, **limits) as setting, growing(setting.http, _silent(_SILENCE / shorter)) as stream:
        body = stream.rest()
    assert is_whole(body)
    assert b"After" in body
    kept_alive = body.count(b": keep-alive\n\n")
    assert kept_alive >= 10, kept_alive
    return (
        f"1/{shorter} of the time: {kept_alive} keep-alives, then the rest; `idle_seconds` is {usual.idle_seconds:g}."
    )


def _silent(seconds: float) -> str:
    return standin(f"silent ms={int(1000 * seconds)}")


@fault(
    "the agent exits with status 0 and without a result",
    provoked="It writes something and exits normally.",
    holds="The run fails with 502 `agent_crashed` and the output so far.",
)
def no_result(place: Place) -> str:
    with _gateway(place) as setting:
        whole, stream = _crash(setting, "truncated")
        assert whole == Failed(502, "agent_crashed", _SAID), whole
        assert stream == Failed(200, "agent_crashed", _SAID), stream
    return "502 `agent_crashed`; a stream ends with the same error."


@fault(
    "the agent does not exit after its result",
    provoked="It hangs after `result`; `grace_seconds` is 2, the default.",
    holds="The answer is complete at once, not after the grace period; then the agent is ended.",
)
def lingers(place: Place) -> str:
    with _gateway(place, grace_seconds="2") as setting:
        began = time.monotonic()
        with growing(setting.http, standin("hang-after-result")) as stream:
            assert is_whole(stream.rest())
            assert agents_of(setting.gateway), "the agent ended by itself: nothing is shown"
        answered = time.monotonic() - began
        wait_until(lambda: not agents_of(setting.gateway), _SOON, "the agent is gone")
        gone = time.monotonic() - began
    return f"Complete after {answered:.2f} s; the agent was ended after {gone:.1f} s."


@fault(
    "the agent closes its output and keeps running",
    provoked="It closes its standard output, before or after its result, and hangs.",
    holds="Without a result: `agent_crashed` after the grace period. With a result, the answer is complete. Then "
    "the agent is ended.",
)
def closes_stdout(place: Place) -> str:
    with _gateway(place, grace_seconds="0.3") as setting:
        whole, stream = _crash(setting, "close-stdout")
        assert whole == Failed(502, "agent_crashed", _SAID), whole
        assert stream == Failed(200, "agent_crashed", _SAID), stream
        assert text_of(chat(setting.http, standin("close-stdout-result"))) == "I have said it all."
    return "Without a result, 502 with the output so far; with one, 200; no agent is left."


@fault(
    "the agent ignores SIGTERM",
    provoked="It ignores SIGTERM and SIGINT; its client disconnects. Then the same with an agent that floods its pipe.",
    holds="It is killed after the grace period of 1 s; what it writes meanwhile is not kept.",
)
def ignores_term(place: Place) -> str:
    took = []
    with _gateway(place, max_output_bytes=str(1 << 40)) as setting:
        for scenario in ("ignore-term", f"flood bytes={1 << 40} term=ignore"):
            with growing(setting.http, standin(scenario)) as stream:
                stream.until(b"content_delta")
            began = time.monotonic()
            wait_until(lambda: not agents_of(setting.gateway), _SOON, "the agent is gone")
            took.append(time.monotonic() - began)
        grown = setting.grown_mb
    assert grown < 200, f"{grown:.0f} MB"
    return f"Gone {took[0]:.1f} s and {took[1]:.1f} s after the disconnect; memory grew by {grown:.0f} MB at most."


@fault(
    "the agent is suspended",
    provoked="It suspends itself with SIGSTOP, so only SIGKILL and SIGCONT have an effect.",
    holds="The idle timeout ends the run like any silence, and a disconnecting client ends it as usual; the agent "
    "is killed.",
)
def stopped(place: Place) -> str:
    with _gateway(place, idle_seconds="0.5", grace_seconds="0.3") as setting:
        whole, _ = _crash(setting, "stopped")
        assert whole == Failed(504, "agent_timed_out", _SAID), whole
        wait_until(lambda: not agents_of(setting.gateway), _SOON, "the agent is gone")
    with _gateway(place, grace_seconds="0.3") as setting:
        with growing(setting.http, standin("stopped")) as stream:
            stream.until(b"more.")
        wait_until(lambda: not agents_of(setting.gateway), _SOON, "the agent is gone")
    return "504 with the output so far; the agent was also ended when the client disconnected."


# --- noise and size -----------------------------------------------------------------------------------


@fault(
    "the agent writes a lot to standard error",
    provoked="100 MB on standard error between the words of its answer (short form: 20 MB).",
    holds="The answer is complete, and the gateway keeps only the last 64 kB of standard error.",
)
def chatty(place: Place) -> str:
    count = place.size(100_000_000, 20_000_000)
    with _gateway(place) as setting:
        answer = chat(setting.http, standin(f"stderr-flood bytes={count}"))
        assert text_of(answer) == "".join(f"{nth} " for nth in range(10)), answer
        grown = setting.grown_mb
    assert grown < 10, f"{grown:.0f} MB"
    return f"{count // 1_000_000} MB on stderr; the answer is complete; memory grew by {grown:.1f} MB at most."


@fault(
    "the agent writes garbage",
    provoked="Random bytes, incomplete UTF-8, NULs, broken JSON and unknown JSON, between valid lines.",
    holds="Every valid line is delivered; the others have no effect.",
)
def garbage(place: Place) -> str:
    rounds = place.size(2000, 200)
    with _gateway(place) as setting:
        answer = chat(setting.http, standin(f"noise rounds={rounds}"))
        assert text_of(answer) == "".join(f"{nth} " for nth in range(rounds)), text_of(answer)[:1000]
        assert [document["type"] for document in answer["documents"]] == ["text"], answer["documents"]
    return f"{rounds} valid lines among {7 * rounds} others: all of their text was delivered, and nothing else."


@fault(
    "the agent writes a line of 20 MB",
    provoked="The result of a tool holds a file of 20 MB, in one line of JSON.",
    holds="It is read, delivered and stored; others are answered meanwhile; memory stays within a small multiple "
    "of it.",
)
def long_line(place: Place) -> str:
    size = 20_000_000
    with _gateway(place) as setting:
        slowest, stop = 0.0, threading.Event()

        def ask_meanwhile() -> None:
            nonlocal slowest
            with client(setting.gateway) as http:
                while not stop.is_set():
                    began = time.monotonic()
                    assert http.get("/health").status_code == 200
                    slowest = max(slowest, time.monotonic() - began)

        other = threading.Thread(target=ask_meanwhile)
        other.start()
        try:
            answer = chat(setting.http, standin(f"huge-line size={size}"))
        finally:
            stop.set()
            other.join()
        (read,) = (document for document in answer["documents"] if document["type"] == "tool_call")
        assert len(read["metadata"]["result"]["data"]) >= size, "the file is not whole"
        assert text_of(answer) == "That was a long file."
        stored = setting.http.get(f"/v1/chat/{answer['id']}").json()
        assert stored["documents"] == answer["documents"], "what is stored differs"
        grown = setting.grown_mb
    assert grown < 25 * size / 1e6, f"{grown:.0f} MB"
    return (
        f"All {size // 1_000_000} MB were delivered and stored; the slowest /health meanwhile took "
        f"{1000 * slowest:.0f} ms; memory grew by {grown:.0f} MB at most."
    )


@fault(
    "the agent writes a line of 2 GB",
    provoked="2 GB without a line break, with the default limits (short form: 200 MB).",
    holds="502 `agent_output_too_large` with the output so far, as soon as the line is longer than 32 MiB; the "
    "agent is ended; memory grows by little more than that.",
    seconds=120,
)
def endless_line(place: Place) -> str:
    size = place.size(2_000_000_000, 200_000_000)
    with _gateway(place) as setting:
        began = time.monotonic()
        result = _whole_failure(setting.http, standin(f"endless-line bytes={size}"))
        took = time.monotonic() - began
        assert result == Failed(502, "agent_output_too_large", _SAID), result
        wait_until(lambda: not agents_of(setting.gateway), _SOON, "the agent is gone")
        grown = setting.grown_mb
    assert grown < 1.5 * LONGEST_LINE / 2**20, f"{grown:.0f} MB"
    return f"502 after {took:.1f} s; memory grew by {grown:.0f} MB at most."


@fault(
    "the agent writes faster than anyone reads",
    provoked="Endless text, as fast as the pipe accepts it; one client reads nothing, one waits for the whole answer.",
    holds="`max_output_bytes` ends the run with `agent_output_too_large`; others are answered; memory stays within a "
    "multiple of that limit.",
    seconds=120,
)
def flood(place: Place) -> str:
    limit = place.size(64_000_000, 8_000_000)
    with _gateway(place, max_output_bytes=str(limit)) as setting:
        asked = standin(f"flood bytes={1 << 40}")
        with connected(setting.gateway) as unresponsive:
            unresponsive.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unresponsive.sendall(request("POST", "/v1/chat", body={"message": asked, "stream": True}))
            result = _whole_failure(setting.http, asked)
            assert result.code == "agent_output_too_large", result.code
            assert is_healthy(setting.gateway)
            wait_until(lambda: not agents_of(setting.gateway), 60, "both agents are gone")
        grown = setting.grown_mb
    assert grown < 12 * limit / 1e6 + 20, f"{grown:.0f} MB"
    return f"Both runs ended at {limit / 1e6:.0f} MB; memory grew by {grown:.0f} MB at most for the two."


@fault(
    "the agent keeps writing after its result",
    provoked="50 MB of further text after `result`, then it exits.",
    holds="Nothing after the result is delivered or kept, and it does not prevent the agent from exiting.",
)
def after_the_result(place: Place) -> str:
    with _gateway(place) as setting:
        with growing(setting.http, standin("after-result bytes=50000000")) as stream:
            body = stream.rest()
        assert is_whole(body)
        assert b"All work" not in body
        wait_until(lambda: not agents_of(setting.gateway), _SOON, "the agent is gone")
        grown = setting.grown_mb
    assert grown < 20, f"{grown:.0f} MB"
    return f"The answer is complete without it; memory grew by {grown:.1f} MB at most."


@fault(
    "the agent does not read its prompt",
    provoked="A prompt of 5 MB is sent through standard input; the program exits at once without reading it.",
    holds="502 `agent_crashed`, at once and every time; the gateway does not wait for input that is not read.",
    seconds=120,
)
def unread_prompt(place: Place) -> str:
    with _gateway(place) as setting:
        program = setting.gateway.home / "bin" / "cursor-agent"
        standin_program = program.with_name("agent")
        asked = 'case "$*" in *--version*|*--help*|*--list-models*) exec '
        _replace(program, f'#!/bin/sh\n{asked}{standin_program} "$@";; esac\nexit 7\n', 0o755)
        for _ in range(times := place.size(10, 3)):
            result = _whole_failure(setting.http, "word " * 1_000_000)
            assert result == Failed(502, "agent_crashed", ""), result
        _mend(setting)
    return f"{times} prompts of 5 MB: 502 `agent_crashed` each time, and the next request is answered as usual."


# --- its program --------------------------------------------------------------------------------------


@fault(
    "the agent's program is removed while the gateway runs",
    provoked="It is replaced by a folder, a file that is not executable, a script without its interpreter, or "
    "random bytes, or deleted.",
    holds="Each request gets a 503 `agent_missing` that says what to do, and /health a 503 if it can detect this; "
    "active runs continue; when the program is back, the next request is answered.",
)
def program_gone(place: Place) -> str:
    go = place.folder / "go"
    with _gateway(place) as setting:
        program = setting.gateway.home / "bin" / "cursor-agent"
        program.with_name("agent").unlink()
        kept = program.read_bytes()
        with growing(setting.http, standin(f"wait-for file={go}")) as stream:
            stream.until(b"file.")
            for what in ("folder", "not executable", "no interpreter", "rubbish", "nothing"):
                match what:
                    case "folder":
                        program.unlink()
                        program.mkdir()
                    case "not executable":
                        _replace(program, kept, 0o644)
                    case "no interpreter":
                        _replace(program, "#!/nowhere/python\n", 0o755)
                    case "rubbish":
                        _replace(program, b"\x7fELF\0\0rubbish", 0o755)
                    case _:
                        _replace(program, None)
                for stream_too in (False, True):
                    reply = setting.http.post("/v1/chat", json={"message": "?", "stream": stream_too})
                    result = reply.json()["error"]
                    assert (reply.status_code, result["code"]) == (503, "agent_missing"), (what, reply.text)
                    assert "cursor-gateway doctor" in result["message"] or "install it" in result["message"], result
                health = setting.http.get("/health").status_code
                assert health == (200 if what in _SEEN_BY_ASKING else 503), (what, health)
                _replace(program, kept, 0o755)
                assert is_healthy(setting.gateway), f"after {what}"
            go.touch()
            assert is_whole(stream.rest()), "the run that went on meanwhile"
    return "Five kinds, each 503 `agent_missing` and recovered at once; the active run is complete."


_SEEN_BY_ASKING = ("no interpreter", "rubbish")  # only who starts it finds out


def _replace(program: Path, content: str | bytes | None, mode: int = 0) -> None:
    """At once, as an update does: nobody sees half of it."""
    if program.is_dir():
        program.rmdir()
    if content is None:
        program.unlink()
        return
    new = program.with_name(".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.chmod(mode)
    new.rename(program)


def _mend(setting: Setting) -> None:
    bin = setting.gateway.home / "bin"
    install(bin, knobs={"log": str(setting.gateway.agent_log)})
    add_scenarios(bin)


# --- its children -------------------------------------------------------------------------------------


@fault(
    "the agent leaves a child in its process group that keeps the pipe open",
    provoked="A grandchild in the same process group inherits standard output and sleeps; the agent exits normally.",
    holds="The answer is complete at once, and the grandchild is ended with the agent's process group.",
)
def child_in_the_group(place: Place) -> str:
    with _gateway(place) as setting:
        answer = chat(setting.http, standin("grandchild-pipe group=same seconds=600"))
        grandchild = _grandchild(answer)
        wait_until(lambda: grandchild not in agents_of(setting.gateway), _SOON, "the grandchild is gone")
        # and of an agent that is cancelled
        with growing(setting.http, standin("grandchild group=same")) as stream:
            stream.until(b"grandchild=")
        wait_until(lambda: not agents_of(setting.gateway), _SOON, "both are gone")
    return "The answer was complete; the grandchild ended with its group, also when the client disconnected."


@fault(
    "the agent has many children",
    provoked="500 children in its process group (short form: 100), all ignoring SIGTERM; its client disconnects.",
    holds="All end with the agent, and no zombie is left.",
)
def crowd(place: Place) -> str:
    count = place.size(500, 100)
    with _gateway(place) as setting:
        with growing(setting.http, standin(f"crowd count={count}")) as stream:
            stream.until(b"many.")
            many = len(agents_of(setting.gateway))
            assert many == count + 1, many
        began = time.monotonic()
        wait_until(lambda: not agents_of(setting.gateway), _SOON, "all are gone")
        took = time.monotonic() - began
    return f"{many} processes were gone {took:.2f} s after the client disconnected."


@fault(
    "the agent leaves a child in its own session that keeps the pipe open",
    provoked="A grandchild calls setsid (or creates a process group), keeps standard output and keeps writing to "
    "it, or sleeps; the agent exits normally, or crashes.",
    holds="The run ends without waiting for it, and the grandchild is ended.",
)
def child_in_its_own_session(place: Place) -> str:
    scenarios = {
        f"writer file={place.folder / 'written'}": "",
        "grandchild-pipe": "",
        "abandoned": "agent_crashed",
    }
    with _gateway(place) as setting:
        for group in ("new", "session"):
            for scenario, code in scenarios.items():
                reply = setting.http.post("/v1/chat", json={"message": standin(f"{scenario} group={group}")})
                result = reply.json()
                grandchild = _grandchild(result)
                assert result.get("error", {}).get("code", "") == code, result
                wait_until(lambda: _open_runs(setting) == 0, _SOON, "the run is over")
                wait_until(partial(_is_gone, grandchild), _SOON, "the grandchild is gone")
    return f"{2 * len(scenarios)} runs ended, and so did their grandchildren."


@fault(
    "commands do all they can to outlive their run",
    provoked="Commands ignore SIGTERM, call setsid, fork twice, lose their parents and clear their environment. Their "
    "run is cancelled; their agent is killed; the gateway is killed, and no other one is started.",
    holds="When the reply to cancel arrives, none is left; otherwise all are ended within seconds.",
)
def orphans(place: Place) -> str:
    took = [_orphans_ended(place, how) for how in ("cancel", "agent", "gateway")]
    cancelled, without_agent, without_gateway = (f"{seconds:.2f} s" for seconds in took)
    return (
        f"All were gone {cancelled} after cancel, {without_agent} after the agent, {without_gateway} after the gateway."
    )


def _orphans_ended(place: Place, how: str) -> float:
    """After how many seconds."""
    with (
        running_gateway(place.folder / how) as gateway,
        client(gateway) as http,
        growing(http, standin("orphans")) as stream,
    ):
        stream.until(b"started.")
        found = re.search(rb"orphans=([\d,]+)", stream.body)
        assert found, stream.body
        pids = [int(pid) for pid in found[1].split(b",")]
        assert all(map(start_of, pids)), pids
        time.sleep(2)  # what has neither a name nor a parent is noted once a second
        began = time.monotonic()
        if how == "cancel":
            http.post(f"/v1/chat/{stream.id}/cancel", json={})
            assert not any(map(start_of, pids)), pids
        else:
            pid = gateway.process.pid
            os.kill(pid if how == "gateway" else _agents_below(pid, pids)[0], signal.SIGKILL)
        wait_until(lambda: not any(map(start_of, pids)), _SOON, "all are gone")
        return time.monotonic() - began


def _agents_below(gateway: int, orphans: Collection[int]) -> list[int]:
    below = (one for one in snapshot().values() if one.parent == gateway and one.pid not in orphans)
    return [process.pid for process in below if process.session == process.pid]


def _is_gone(pid: int) -> bool:
    return start_of(pid) is None


def _grandchild(answer: Json) -> int:
    found = re.search(r"grandchild=(\d+)", text_of(answer))
    assert found, answer
    return int(found[1])


def _open_runs(setting: Setting) -> int:
    return int(setting.http.get("/health").json()["runs"]["running"])


# --- agents that are kept alive -----------------------------------------------------------------------


@fault(
    "a long-running agent is killed or suspended in the middle of two turns",
    provoked="`source` is acp; SIGKILL, then SIGSTOP, while two sessions of one process are answering.",
    holds="Both runs end with the output so far and an error; the next request gets another process; none is left.",
)
def kept_alive(place: Place) -> str:
    settings = {"source": "acp", "max_agents": "1", "idle_seconds": "1", "max_runs": "32"}
    codes = []
    with place.gateway(settings=settings) as gateway, client(gateway) as http:
        assert is_healthy(gateway)
        for number, expected in ((signal.SIGKILL, "agent_crashed"), (signal.SIGSTOP, "agent_timed_out")):
            with growing(http, standin("hang-mid")) as one, growing(http, standin("hang-mid")) as other:
                one.until(b"more.")
                other.until(b"more.")
                broken = set(agents_of(gateway))
                for pid in broken:
                    os.kill(pid, number)
                for stream in (one, other):
                    result = _failed(200, stream.rest())
                    assert result == Failed(200, expected, _SAID), result
                    codes.append(result.code)
            assert is_healthy(gateway), f"after {number.name}"
            _wait_gone(gateway, broken)
    return f"Four runs: {', '.join(f'`{code}`' for code in codes)}; after each the next answer was complete."


@fault(
    "the client of a long-running agent disconnects, and the agent ignores the cancellation",
    provoked="`source` is acp; the agent ignores `session/cancel` and SIGTERM; its client disconnects in the "
    "middle of a run.",
    holds="The run ends as cancelled; the unresponsive process is killed; the next request is answered.",
)
def kept_and_deaf(place: Place) -> str:
    settings = {"source": "acp", "max_agents": "1", "max_runs": "32"}
    with place.gateway(settings=settings) as gateway, client(gateway) as http:
        assert is_healthy(gateway)
        with growing(http, standin("ignore-term")) as stream:
            stream.until(b"listen.")
            unresponsive = set(agents_of(gateway))
        began = time.monotonic()
        _wait_gone(gateway, unresponsive)
        took = time.monotonic() - began
        assert is_healthy(gateway)
    return f"Gone after {took:.1f} s; the next answer was complete."


def _wait_gone(gateway: RunningGateway, old: set[int]) -> None:
    wait_until(lambda: not old & set(agents_of(gateway)), _SOON, "the broken process is gone")
