"""A turn in; failures, crashes, noise and silence out."""

import _signal as signal  # type: ignore[import-not-found] # without `enum`, which takes longer
import os
import time

from tests.agent import failures
from tests.agent.turn import Turn, answers, hang, runs


@runs("fail-auth")
def fail_auth(turn: Turn) -> None:
    raise failures.not_logged_in()


@runs("fail-key")
def fail_key(turn: Turn) -> None:
    raise failures.bad_key()


@runs("fail-trust")
def fail_trust(turn: Turn) -> None:
    raise failures.untrusted(turn.workspace)


@runs("fail-model")
def fail_model(turn: Turn) -> None:
    raise failures.unknown_model(turn.text("model", turn.model), turn.models)


@runs("fail-resume")
def fail_resume(turn: Turn) -> None:
    raise failures.broken_session(turn.agent.session, "file is not a database")


@runs("fail-force")
def fail_force(turn: Turn) -> None:
    raise failures.force_forbidden()


@runs("fail-sandbox")
def fail_sandbox(turn: Turn) -> None:
    raise failures.no_sandbox()


@runs("fail-free-plan")
def fail_free_plan(turn: Turn) -> None:
    turn.begin()
    raise failures.free_plan()


@runs("fail-quota")
def fail_quota(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    raise failures.usage_limit_action() if turn.text("variant", "") == "action" else failures.usage_limit()


@runs("fail-quota-early")
def fail_quota_early(turn: Turn) -> None:
    turn.begin()
    raise failures.usage_limit()


@runs("fail-words")
def fail_words(turn: Turn) -> None:
    """With the words of the request, and what its variables hold."""
    turn.begin()
    raise failures.Failure(os.path.expandvars(turn.request.body))


@runs("fail-capacity")
def fail_capacity(turn: Turn) -> None:
    turn.begin()
    _lose_connection(turn, failures.CAPACITY)


@runs("fail-capacity-late")
def fail_capacity_late(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    _lose_connection(turn, failures.CAPACITY)


@runs("fail-network")
def fail_network(turn: Turn) -> None:
    turn.begin()
    _lose_connection(turn, failures.NETWORK[turn.text("kind", "dns")])


@runs("fail-network-late")
def fail_network_late(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    _lose_connection(turn, failures.NETWORK[turn.text("kind", "cancel")])


def _lose_connection(turn: Turn, reason: str) -> None:
    for attempt in (1, 2, 3):
        turn.agent.lose_connection(attempt)
        turn.agent.retry(attempt, resumes=bool(turn.agent.said))
    raise failures.retriable(reason, turn.text("class", "RetriableError"))


@runs("fail-internal")
def fail_internal(turn: Turn) -> None:
    turn.begin()
    for attempt in (1, 2, 3):  # each time it comes back, and is lost again: seen in 2026.05
        turn.agent.lose_connection(attempt)
        turn.agent.retry(attempt, resumes=True)
        turn.agent.reconnect()
    raise failures.retriable(failures.NETWORK["internal"], turn.text("class", "RetriableError"))


@runs("fail-result")
def fail_result(turn: Turn) -> int:
    turn.begin()
    turn.agent.fail_result("The agent could not finish.")
    return turn.number("exit", 1)


@runs("crash")
def crash(turn: Turn) -> int:
    turn.begin()
    turn.say("I was about to say more.")
    return turn.number("exit", 1)


@runs("crash-early")
def crash_early(turn: Turn) -> int:
    return turn.number("exit", 3)


@runs("killed")
def killed(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    os.kill(os.getpid(), signal.SIGKILL)


@runs("truncated")
def truncated(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")


@runs("no-newline")
def no_newline(turn: Turn) -> None:
    turn.begin()
    turn.say("The last line has no end.")
    turn.finish(end=b"")


@answers("garbage")
def garbage(turn: Turn) -> None:
    turn.agent.raw(b"Debugger attached.\n\n[]\n42\n{\n")
    turn.say("There is noise")
    turn.agent.record({"type": "weather", "sky": "blue", "session_id": turn.agent.session})
    turn.agent.record({"type": "system", "subtype": "task_notification", "session_id": turn.agent.session})
    turn.agent.raw(b'{"no":"type"}\n{"type":7}\n')
    turn.say(" on the line.")


@answers("bad-utf8")
def bad_utf8(turn: Turn) -> None:
    turn.say("Some bytes")
    session = turn.agent.session.encode()
    turn.agent.raw(b'\xff\xfe\n{"type":"thinking","subtype":"delta","text":"\xc3(","session_id":"' + session + b'"}\n')
    turn.say(" are broken.")


@answers("stderr-flood")
def stderr_flood(turn: Turn) -> None:
    count = turn.number("bytes", 1_000_000)
    for nth in range(10):
        turn.warn("x" * max(0, (nth + 1) * count // 10 - nth * count // 10 - 1))
        turn.agent.say(f"{nth} ")


@runs("hang")
def hang_at_once(turn: Turn) -> None:
    hang()


@runs("hang-after-init")
def hang_after_init(turn: Turn) -> None:
    turn.begin()
    hang()


@runs("hang-mid")
def hang_mid(turn: Turn) -> None:
    turn.begin()
    turn.say("I was about to say more.")
    hang()


@runs("hang-after-result")
def hang_after_result(turn: Turn) -> None:
    turn.begin()
    turn.say("I have said it all.")
    turn.finish()
    hang()


@answers("slow")
def slow(turn: Turn) -> None:
    for nth in range(turn.number("count", 5)):
        turn.pause("delay_ms", 200)
        turn.agent.say(f"{nth} ")


@answers("silent")
def silent(turn: Turn) -> None:
    turn.say("Before the silence.")
    turn.pause("ms", 1000)
    turn.say(" After the silence.")


@answers("wait-for")
def wait_for(turn: Turn) -> None:
    turn.say("Waiting for the file.")
    while not os.path.exists(turn.text("file", "")):
        time.sleep(0.005)
    turn.say(" It is there.")


@runs("ignore-term")
def ignore_term(turn: Turn) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    turn.begin()
    turn.say("I do not listen.")
    hang()


@runs("grandchild")
def grandchild(turn: Turn) -> None:
    turn.begin()
    turn.say(f"grandchild={_spawn(turn, keeps_stdout=False)} ")
    hang()


@answers("grandchild-pipe")
def grandchild_pipe(turn: Turn) -> None:
    turn.say(f"grandchild={_spawn(turn, keeps_stdout=True)} ")


# Each writes its pid to $0, and ignores SIGTERM. As a command does that the real agent runs, the first is in a session
# of its own, and knows the conversation.
_DEAF = "trap '' TERM; echo $$ >>$0; exec sleep 600"
ORPHANS = f"""
export deaf="{_DEAF.replace("$", chr(92) + "$")}"
sh -c "$deaf" $0 &
setsid sh -c "$deaf" $0 &
(setsid sh -c "$deaf" $0 &)
(setsid sh -c 'sh -c "$deaf" $0 & sh -c "$deaf" $0 & exit' $0 &)
env -i sh -c "$deaf" $0 &
if test "$BARE"; then (env -i setsid sh -c "$deaf" $0 &) fi
{_DEAF}
"""


@runs("orphans")
def orphans(turn: Turn) -> int:
    """Processes that do all they can to be left behind."""
    import subprocess

    is_bare = turn.number("bare", 1)
    file = os.path.join(turn.workspace, f"orphans-{os.getpid()}-{turn.agent.session}")
    environment = {**os.environ, "CURSOR_CONVERSATION_ID": turn.agent.session, "BARE": "1" if is_bare else ""}
    turn.begin()
    subprocess.Popen(
        ["sh", "-c", ORPHANS, file], stdin=subprocess.DEVNULL, start_new_session=True, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pids: list[str] = []
    while len(pids) < 7 + is_bare:
        time.sleep(0.005)
        if os.path.exists(file):
            with open(file) as written:
                pids = written.read().split()
    turn.say(f"orphans={','.join(pids)} are started.")
    if turn.number("ends", 0):
        turn.finish()
    else:
        hang()
    return 0


def _spawn(turn: Turn, *, keeps_stdout: bool) -> int:
    import subprocess  # here, because most runs start nothing and its import takes as long as Python's start

    group = turn.text("group", "same")
    return subprocess.Popen(
        ["sleep", turn.text("seconds", "600")],
        stdin=subprocess.DEVNULL,
        stdout=None if keeps_stdout else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0 if group == "new" else None,
        start_new_session=group == "session",
    ).pid
