"""The table of the agent's failures (tests/failure_table.py) in; a page on what APIs and clients make of them out."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cursor_gateway.dialects.errors import OPENAI_ERRORS, error_body, error_in_stream
from cursor_gateway.dialects.messages.shapes import ANTHROPIC_ERRORS, error_response, stream_error
from cursor_gateway.dialects.responses.shapes import response_error
from cursor_gateway.errors import Failure
from tests.failure_table import FAILURES, MISSING, ROWS, SET, TOO_MANY, Counted, Program, Row, attempts
from tools.reference.markdown import page, table
from tools.reference.table_pages import error_classes

_COUNTED = Path(__file__).parents[2] / "docs" / "parts" / "client_failures.jsonl"
_ROWS = list({row.code: row for row in [*ROWS, *(one.row for one in SET.values()), MISSING, TOO_MANY]}.values())


def failures_page() -> str:
    return page(
        "Failures of the agent",
        "What each API makes of a failure, and how many agents run when Codex or Claude Code meets it. The tests ask\n"
        "every API for every failure, streaming or not (`tests/server/test_failures.py`), and count the requests and\n"
        "agents of the real programs (`tests/clients/test_failures.py`).\n"
        "[Troubleshooting](../troubleshooting.md) says what to do.",
        "## Before the answer begins",
        "Whole replies, and streams in which the agent has not said anything. If it has, `x-should-retry` is `false`\n"
        "in every API, because a retry would do the same work twice.\n\n"
        "The documents API has a status for each kind of failure. The other APIs have the statuses that their clients\n"
        "show at once and do not retry: 402 for an account that is used up, and 424 (Failed Dependency) where the\n"
        "agent has failed. There, `agent_overloaded` is called `agent_no_capacity`, and a 424 has no `details`.\n"
        "The reasons are in [Failures have statuses that clients show]"
        "(../decisions/2026-11-18-failures-have-statuses-that-clients-show.md).",
        table(
            [
                "code",
                "documents: status",
                "retry",
                "others: status",
                "type: chat, responses",
                "type: messages",
                "retry",
            ],
            map(_early, _ROWS),
        ),
        "`retry` is the header `x-should-retry`, with `retry-after` in seconds where it is sent. OpenAI's and\n"
        "Anthropic's SDKs obey it.",
        "## In a stream",
        "After the agent has begun to answer. A stream of documents ends with an `error` document whose `errorCode`\n"
        "is the code in capitals. Codex gets its failures in this form from the start.",
        table(
            [
                "code",
                "chat: `error.type`",
                "responses: `error.code`",
                "messages: `error.type`",
                "Codex: `error.code`",
            ],
            map(_late, _ROWS),
        ),
        "## Codex and Claude Code",
        "What one question leads to. Where Claude Code sends two requests, the second one gets the same failure\n"
        "without an agent. A 404 it explains in its own words; otherwise both show the gateway's message.",
        table(
            ["code", "when", "Codex: requests", "agents", "Claude Code: requests", "agents"],
            map(_counted, _distinct()),
        ),
        "`too_many_runs` is the gateway's own: no agent was started, so both try again after a second, Codex up to 6\n"
        "times, Claude Code up to 11 times, and one agent runs when there is a place.",
        "## Every client",
        "For one question: the agents that were started, and the seconds from the client's request until the person\n"
        "sees why it failed, on two busy cores. `tests/clients/test_retries.py` asks the real programs; with\n"
        "`CLIENT_FAILURES=docs/parts/client_failures.jsonl` it writes these figures. aider repeats its request for a\n"
        "minute after it has shown the message; the gateway answers without an agent.",
        table(["client", *(failure.name for failure in FAILURES)], _clients()),
        "A reply that is cut off, lost or replaced by a 500 on its way, and a gateway that is killed in the middle of\n"
        "an answer, also lead to one agent (`tests/clients/test_faults.py`): see\n"
        "[A retry joins the run that it repeats](../decisions/2026-11-16-retries-join-the-run.md).",
    )


def _clients() -> Iterator[tuple[str, ...]]:
    lines = _COUNTED.read_bytes().splitlines() if _COUNTED.exists() else []
    counted = {(one.failure, one.client): one.met for one in map(msgspec.json.Decoder(Counted).decode, lines)}
    for client in dict.fromkeys(client for _, client in counted):
        found = [counted.get((failure.name, client)) for failure in FAILURES]
        yield (client, *("" if met is None else f"{met.agents}, {met.seconds} s" for met in found))


def _failure(row: Row) -> Failure:
    (error,) = (error for error in error_classes() if error.code == row.code)
    return error("…").failure()


def _early(row: Row) -> tuple[str, ...]:
    failure = _failure(row)
    openai, anthropic = OPENAI_ERRORS.shown(failure), ANTHROPIC_ERRORS.shown(failure)
    return (
        f"`{row.code}`",
        str(failure.status),
        _retry(failure),
        str(openai.status),
        f"`{error_body(openai).type}`",
        f"`{error_response(anthropic).error.type}`",
        _retry(openai),
    )


def _retry(failure: Failure) -> str:
    if not failure.retryable:
        return "false"
    return "true" if failure.retry_after is None else f"true, {failure.retry_after}"


def _late(row: Row) -> tuple[str, ...]:
    failure = _failure(row)
    anthropic = json.loads(stream_error(failure).partition(b"data: ")[2])["error"]["type"]
    codes = [response_error(failure, is_codex=is_codex, has_begun=row != TOO_MANY).code for is_codex in (False, True)]
    return tuple(f"`{cell}`" for cell in (row.code, error_in_stream(failure).type, codes[0], anthropic, codes[1]))


def _distinct() -> list[Row]:
    """Those that real clients can tell apart, and that they meet although they have tools of their own."""
    rows = [
        *ROWS,
        SET["nothing is ever said"].row,
        SET["silence in the middle"].row,
        SET["too much output"].row,
        MISSING,
    ]
    return list({row.effect: row for row in rows}.values())


def _counted(row: Row) -> tuple[str, ...]:
    programs: tuple[Program, ...] = ("codex", "claude")
    counts = [attempts(program, row) for program in programs]
    when = "before the answer begins" if row.when == "early" else "after it has begun"
    return (f"`{row.code}`", when, *(str(count) for one in counts for count in (one.requests, one.agents)))
