"""A turn over ACP in; scenarios that are played otherwise than by the CLI, because the client can answer, out."""

import time
from collections.abc import Callable

from tests.agent.acp_emitter import AcpEmitter, is_permitted
from tests.agent.actions import SKIPPED
from tests.agent.emitter import Record
from tests.agent.turn import Scenario, Turn

TYPE_CHECKING = False  # as in `typing`, whose import takes long
if TYPE_CHECKING:
    from tests.agent.acp import Session


def overrides(session: "Session", agent: AcpEmitter) -> dict[str, Scenario]:
    return {
        "question": _finished(lambda turn: _question(turn, session, agent)),
        "plan": _finished(lambda turn: _plan(turn, session, agent)),
        "web": _finished(lambda turn: _web(turn, session, agent)),
        "ignore-term": lambda turn: _deaf(turn, session),
    }


def _finished(tell: Callable[[Turn], None]) -> Scenario:
    def run(turn: Turn) -> None:
        turn.begin()
        tell(turn)
        turn.finish()

    return run


def _question(turn: Turn, session: "Session", agent: AcpEmitter) -> None:
    turn.say("I need to know more.")
    choices = [{"id": name, "label": name} for name in ("notes.txt", "other.txt")]
    asked = {"id": "file", "prompt": "Which file is meant?", "options": choices, "allowMultiple": False}
    call = turn.call("askQuestion", {"title": "Which file?", "questions": [asked]})
    if not turn.knobs.flag("acp_unannounced"):
        agent.start(call)
    answer = session.server.ask("cursor/ask_question", {"toolCallId": call.id, **call.args})
    if not turn.knobs.flag("acp_unannounced"):
        agent.complete(call, {})
    match answer:
        case {"outcome": {"outcome": "answered", "answers": list(answers)}}:
            chosen = [id for one in answers for id in one["selectedOptionIds"]]
            turn.say(f"You chose {', '.join(chosen)}.")
        case {"outcome": {"outcome": "skipped", "reason": reason}}:
            assert reason == SKIPPED
            turn.say("Which file is meant: `notes.txt` or `other.txt`?")
        case _:
            turn.say(f"Strange answer: {answer}")


def _plan(turn: Turn, session: "Session", agent: AcpEmitter) -> None:
    turn.say("I'll make a plan.")
    name = turn.text("name", "Move to Postgres")
    todos: list[Record] = [
        {"id": "dump", "content": "Dump the data", "status": "pending"},
        {"id": "load", "content": "Load the data", "status": "pending"},
    ]
    about: Record = {"name": name, "overview": "Dump, load, switch", "isProject": False, "phases": []}
    call = turn.call("createPlan", {"plan": f"# {name}\n\nDump, load, switch.\n", "todos": todos, **about})
    agent.start(call)
    answer = session.server.ask("cursor/create_plan", {"toolCallId": call.id, **call.args})
    agent.complete(call, {})
    match answer:
        case {"outcome": {"outcome": "accepted"}}:
            agent.entries(todos)
        case {"outcome": {"outcome": outcome}}:
            turn.say(f"The plan was {outcome}.")
        case _:
            turn.say(f"Strange answer: {answer}")


def _web(turn: Turn, session: "Session", agent: AcpEmitter) -> None:
    """Permission is asked for before the call, under another id."""
    url = turn.text("url", "https://example.com")
    turn.say("Fetching the page.")
    call = turn.call("webFetch", {"url": url})
    host = url.partition("://")[2].partition("/")[0]
    asked: Record = {"toolCallId": "web_fetch_0", "title": f"Fetch {url}", "kind": "fetch"}
    is_allowed = turn.permissions.permits("WebFetch", host) or is_permitted(session, asked, f"Not in allowlist: {host}")
    agent.start(call)
    if is_allowed:
        agent.complete(call, {"success": {"url": url, "markdown": "# A page\n\nIt says little.\n"}})
        turn.say("The page is titled 'A page'.")
    else:
        agent.reject(call, {})
        turn.say("The page may not be fetched.")


def _deaf(turn: Turn, session: "Session") -> None:
    session.is_deaf = True
    turn.begin()
    turn.say("I do not listen.")
    while True:
        time.sleep(60)
