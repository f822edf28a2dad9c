"""What can go wrong with the agent, in each dialect, streaming or not: its own status, code and advice, every time.

Before the first text a failure is the reply's status; after it, an event in the dialect's form. Never an empty 200.
"""

import re
from functools import partial
from pathlib import Path

import httpx2
import pytest

from tests.agent.install import install
from tests.failure_table import MISSING, MODEL, ROWS, SAID, SET, TOO_MANY, WORTH_ANOTHER_TRY, Row
from tests.gateways import running_gateway
from tests.openai_shapes import validate_error
from tests.server.conftest import (
    WAYS,
    Dialect,
    Reply,
    ask,
    at_once,
    chat,
    growing,
    http_client,
    read_reply,
    standin,
    unique,
)

# By status. In a stream every error is of a type that Claude Code does not retry.
ANTHROPIC = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    424: "api_error",
    429: "rate_limit_error",
}


# OpenCode and Kilo retry what contains these, whatever its status (`SessionRetry`, version 1.18.33).
RETRIED_WORDS = re.compile(
    r"429|500|502|503|504|524|rate increased too quickly|rate.limit|too many requests|overloaded"
    r"|service.unavailable|internal.error|internal server error|server.error|provider.returned.error|terminated"
    r"|fetch failed|failed to fetch"
    r"|network[-_\s]error|upstream connect|connection (?:error|refused|lost)|socket connection was closed"
    r"|socket hang up"
    r"|reset before headers|getaddrinfo|enotfound|eai_again|econnrefused|econnreset|etimedout"
    r"|\b(?:request|response|connection|network|stream|read) (?:timeout|timed out|time out)\b"
    r"|try your request again|retry your request|resource.exhausted|\btry again (?:later|in\b)"
    r"|\b(?:currently|temporarily) at capacity\b",
    re.IGNORECASE,
)


def check(row: Row, response: httpx2.Response, dialect: Dialect, *, stream: bool) -> Reply:
    found = read_reply(response, dialect)
    status, kind, code, retried = row.client_status, row.client_kind, row.client_code, {"too_many_runs"}
    if dialect == "documents":
        status, code, retried = row.status, row.code, WORTH_ANOTHER_TRY
    if dialect == "documents":
        kind = row.kind
    elif found.status == 200:
        kind = row.kind_in_stream if dialect == "openai" else row.kind
    elif found.status in (402, 424):
        assert not RETRIED_WORDS.search(response.text), response.text
    if dialect == "messages":
        in_stream = "rate_limit_error" if row.status == 429 else "invalid_request_error"
        kind, code = in_stream if found.status == 200 else ANTHROPIC[status], ""
    assert (found.code, row.advice in found.message) == (code, True), found
    begins = row.when == "late" or (row.when == "either" and response.status_code == 200)
    assert found.status == (200 if stream and begins else status)
    if found.kind:  # an event of the documents dialect has no place for it
        assert found.kind == kind
    if found.status != 200 and row.when != "either":  # an agent that has begun must not be run again
        is_worth_it = row.code in retried and row.when == "early"
        assert response.headers["x-should-retry"] == ("true" if is_worth_it else "false")
        assert response.headers.get("retry-after") == (row.retry_after if is_worth_it else None)
    if row.when == "late" and (stream or dialect == "documents"):
        assert found.text == SAID  # what had arrived is not lost
    return found


@pytest.mark.parametrize(("dialect", "stream"), WAYS)
@pytest.mark.parametrize("row", ROWS, ids=[row.prompt for row in ROWS])
@pytest.mark.quick_cases(29)
def test_a_failure_of_the_agent(http: httpx2.Client, row: Row, dialect: Dialect, stream: bool) -> None:
    prompt = f"{unique()} {standin(row.prompt)}"  # or it is the question of another case, which has failed
    check(row, ask(http, dialect, prompt, stream=stream), dialect, stream=stream)


def check_all(http: httpx2.Client, row: Row) -> None:
    """In every dialect, streaming or not, at the same time: some of these rows wait for a limit."""
    prompts = {way: f"{unique()} {standin(row.prompt)}" for way in WAYS}
    replies = at_once({way: partial(ask, http, way[0], prompts[way], stream=way[1]) for way in WAYS})
    for (dialect, stream), response in replies.items():
        check(row, response, dialect, stream=stream)


# --- failures that need another gateway -----------------------------------------------------------------


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", SET)
def test_a_failure_that_settings_bring_about(name: str, tmp_path: Path) -> None:
    one = SET[name]
    with running_gateway(tmp_path, settings=one.settings, knobs=one.knobs) as gateway, http_client(gateway) as http:
        check_all(http, one.row)


def test_an_agent_that_is_removed_and_installed_again(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        assert chat(http, "hello")["status"] == "completed"
        for program in ("cursor-agent", "agent"):
            (tmp_path / "bin" / program).unlink()
        check_all(http, MISSING)
        install(tmp_path / "bin", knobs={"log": str(gateway.agent_log)})
        assert chat(http, "hello")["status"] == "completed"


def test_too_many_runs(tmp_path: Path) -> None:
    file = tmp_path / "go"
    with running_gateway(tmp_path / "home", settings={"max_runs": "1"}) as gateway, http_client(gateway) as http:
        with growing(http, "documents", standin(f"wait-for file={file}")) as reply:
            reply.until(b"file.")
            check_all(http, TOO_MANY)
            file.touch()
            assert b"It is there." in reply.rest()
        for dialect, stream in WAYS:  # free with the answer's end, not only when the agent has gone
            response = ask(http, dialect, standin("hang-after-result"), stream=stream)
            assert read_reply(response, dialect) == Reply(200, "I have said it all.")


@pytest.mark.parametrize(("dialect", "stream"), WAYS)
def test_an_unknown_model_has_the_nearest_names(http: httpx2.Client, dialect: Dialect, stream: bool) -> None:
    """Whether the gateway knows the list by now or the agent says so: the same reply."""
    row = Row("", *MODEL, "'gpt-5-mino'")
    for _ in range(2):
        found = check(row, ask(http, dialect, unique(), stream=stream, model="gpt-5-mino"), dialect, stream=stream)
        assert "did you mean gpt-5-mini" in found.message
        http.get("/v1/models")


@pytest.mark.parametrize(
    ("knobs", "failed"),
    [
        ({"login": "none"}, (401, "agent_unauthenticated", "cursor-agent login")),
        ({"models_fail": True}, (502, "agent_failed", "Failed to list models")),
    ],
    ids=["nobody is logged in", "no list"],
)
@pytest.mark.quick_cases(1)
def test_models_that_the_agent_does_not_tell(
    tmp_path: Path, knobs: dict[str, object], failed: tuple[int, str, str]
) -> None:
    status, code, advice = failed
    with running_gateway(tmp_path, knobs=knobs) as gateway, http_client(gateway) as http:
        for path in ("/v1/models", "/v1/models/auto"):
            reply = http.get(path)
            error = validate_error(reply.content)
            assert (reply.status_code, error.code, advice in error.message) == (status, code, True)


def test_an_agent_that_answers_nothing_is_no_failure(http: httpx2.Client) -> None:
    for dialect, stream in WAYS:
        assert read_reply(ask(http, dialect, standin("empty"), stream=stream), dialect) == Reply(200, "")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("scenario", ["garbage", "bad-utf8", "stderr-flood", "no-newline", "hang-after-result"])
def test_noise_is_no_failure(http: httpx2.Client, scenario: str) -> None:
    replies = [read_reply(ask(http, dialect, standin(scenario), stream=stream), dialect) for dialect, stream in WAYS]
    assert {(reply.status, reply.code) for reply in replies} == {(200, "")}
    assert len({reply.text for reply in replies}) == 1
    assert replies[0].text
