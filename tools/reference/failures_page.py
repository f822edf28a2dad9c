"""The table of the agent's failures (tests/failure_table.py) in; a page on what APIs and clients make of them out."""

import json

from cursor_gateway.dialects.errors import OPENAI_ERRORS, Errors, error_body
from cursor_gateway.dialects.messages.errors import ANTHROPIC_ERRORS, error_response, stream_error
from cursor_gateway.dialects.responses.failures import response_error
from cursor_gateway.errors import Failure
from tests.failure_table import MISSING, ROWS, SET, TOO_MANY, Program, Row, attempts
from tools.reference.markdown import page, table
from tools.reference.table_pages import error_classes

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
        "in every API, because a retry would do the same work twice.",
        table(
            ["code", "status", "type: documents, chat, responses", "retry", "type: messages", "retry"],
            map(_early, _ROWS),
        ),
        "`retry` is the header `x-should-retry`, with `retry-after` in seconds where it is sent. OpenAI's SDKs obey\n"
        "it: up to three attempts, each with an agent, of which none had begun to work.",
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
        "A reply that is cut off, lost or replaced by a 500 on its way, and a gateway that is killed in the middle of\n"
        "an answer, also lead to one agent (`tests/clients/test_faults.py`): see\n"
        "[A retry joins the run that it repeats](../decisions/2026-11-16-retries-join-the-run.md).",
    )


def _failure(row: Row) -> Failure:
    (error,) = (error for error in error_classes() if error.code == row.code)
    return error("…").failure()


def _early(row: Row) -> tuple[str, ...]:
    failure = _failure(row)
    types = (f"`{error_body(failure).type}`", f"`{error_response(failure).error.type}`")
    retries = [_retry(errors, failure) for errors in (OPENAI_ERRORS, ANTHROPIC_ERRORS)]
    return (f"`{row.code}`", str(row.status), types[0], retries[0], types[1], retries[1])


def _retry(errors: Errors, failure: Failure) -> str:
    if not errors.is_worth_retrying(failure):
        return "false"
    return "true" if failure.retry_after is None else f"true, {failure.retry_after}"


def _late(row: Row) -> tuple[str, ...]:
    failure = _failure(row)
    anthropic = json.loads(stream_error(failure).partition(b"data: ")[2])["error"]["type"]
    codes = [response_error(failure, is_codex=is_codex, has_begun=row != TOO_MANY).code for is_codex in (False, True)]
    return tuple(f"`{cell}`" for cell in (row.code, error_body(failure).type, codes[0], anthropic, codes[1]))


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
