"""A prompt in; what the stand-in does not do by itself, out: agents that misbehave in further ways.

Like the stand-in it needs only the standard library, and its prompts are the same: `standin: NAME key=value`.

    noise               rounds=20: random bytes, halves of UTF-8, NULs and JSON that is no record between good lines
    endless-line        bytes=N: one line that never ends
    flood               bytes=N term=heed|ignore: text as fast as the pipe takes it
    after-result        bytes=N: says it all, then goes on writing, then ends
    close-stdout        says something, closes its standard output and hangs
    close-stdout-result the same after its result
    stopped             says something, and stops itself with SIGSTOP
    abandoned           group=same|new|session: dies without a result; its child keeps the pipe, and says nothing
    crowd               count=N: as many children of its group, all ignoring SIGTERM, then it hangs
    writer              group=same|new|session file=PATH: ends well, but leaves a child that writes to its pipe, and
                        into the file how many lines it could write before the pipe was closed
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.agent.emitter import to_line
from tests.agent.install import ROOT
from tests.agent.turn import Turn, answers, hang, runs

_BLOCK = 64 * 1024


def add_scenarios(folder: Path) -> None:
    """The stand-in in that folder plays these, too, from now on."""
    program = folder / "cursor-agent"
    known = program.read_text("utf-8")
    main = "from tests.agent.main import main\n"
    assert main in known
    new = folder / ".cursor-agent"
    new.write_text(known.replace(main, f"import chaos.scenarios\n{main}"), "utf-8")
    new.chmod(0o755)
    new.rename(program)
    assert Path(__file__).is_relative_to(ROOT)  # where the launcher looks


@answers("noise")
def noise(turn: Turn) -> None:
    chance = random.Random(8)
    for nth in range(turn.number("rounds", 20)):
        turn.agent.say(f"{nth} ")
        turn.agent.raw(chance.randbytes(chance.randrange(200)).replace(b"\n", b"") + b"\n")
        turn.agent.raw(b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"\xc3\n')
        turn.agent.raw(b"\0" * chance.randrange(50) + b"\n")
        turn.agent.raw(
            chance.choice([b"[]\n", b"null\n", b"17\n", b'"text"\n', b"{}\n", b'{"type":{}}\n', b"[" * 100_000 + b"\n"])
        )
        turn.agent.raw(b'{"type":"assistant","message":null}\n{"type":"tool_call","subtype":"started"}\n\r\n')
        turn.agent.raw(
            b'{"type":"assistant","timestamp_ms":' + b"9" * 5000 + b',"message":{"content":[{"text":1e999}]}}\n'
        )


@runs("endless-line")
def endless_line(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    turn.agent.raw(b'{"type":"assistant","text":"')
    block = b"x" * _BLOCK
    for _ in range(turn.number("bytes", 1 << 20) // _BLOCK):
        turn.agent.raw(block)
    hang()


@answers("flood")
def flood(turn: Turn) -> None:
    if turn.text("term", "heed") == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _write_much(turn, turn.number("bytes", 1 << 20))


@runs("after-result")
def after_result(turn: Turn) -> None:
    turn.begin()
    turn.say("I have said it all.")
    turn.finish()
    _write_much(turn, turn.number("bytes", 1 << 20))


def _write_much(turn: Turn, count: int) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "All work and no play. " * 4}]}
    line = to_line({"type": "assistant", "message": message, "session_id": turn.agent.session, "timestamp_ms": 1})
    block = line * (_BLOCK // len(line))
    for _ in range(count // len(block)):
        turn.agent.raw(block)


@runs("close-stdout")
def close_stdout(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    os.close(1)
    hang()


@runs("close-stdout-result")
def close_stdout_result(turn: Turn) -> None:
    turn.begin()
    turn.say("I have said it all.")
    turn.finish()
    os.close(1)
    hang()


@runs("stopped")
def stopped(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    os.kill(os.getpid(), signal.SIGSTOP)
    hang()


@runs("abandoned")
def abandoned(turn: Turn) -> int:
    turn.begin()
    child = _child(turn, ["sleep", "600"])
    turn.say(f"grandchild={child} ")
    return 1


@runs("crowd")
def crowd(turn: Turn) -> None:
    turn.begin()
    for _ in range(turn.number("count", 10)):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            hang()
    turn.say("We are many.")
    hang()


_WRITER = """
import os, sys, time
count = 0
try:
    while count < 3000:
        os.write(1, b"{}\\n")
        count += 1
        time.sleep(0.02)
finally:
    os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), str(count).encode())
"""


@answers("writer")
def writer(turn: Turn) -> None:
    child = _child(turn, [sys.executable, "-IS", "-c", _WRITER, turn.text("file", "")])
    turn.say(f"grandchild={child} ")


def _child(turn: Turn, arguments: list[str]) -> int:
    """It inherits standard output."""
    group = turn.text("group", "same")
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0 if group == "new" else None,
        start_new_session=group == "session",
    ).pid
