"""The agent's last words: every row of what it is known to print, and the error that each means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway import errors
from cursor_gateway.sources.cursor import failures

USAGE_LIMIT = """Error: You've hit your usage limit
fallbackModel:
spendLimitHit: false
chatMessage: *Your limits reset when your monthly cycle ends on 10/2/2026.*
spendLimits: [50,100,200]"""

LAST_WORDS: list[tuple[str, type[errors.AgentError], int]] = [
    (
        "Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY environment variable.",
        errors.AgentUnauthenticated,
        401,
    ),
    ("Not logged in", errors.AgentUnauthenticated, 401),
    ("\x1b[33m⚠ Warning: The provided API key is invalid.\x1b[0m", errors.AgentUnauthenticated, 401),
    ("⚠ Workspace Trust Required\n\nCursor Agent can execute code and access files", errors.WorkspaceUntrusted, 403),
    ("Cannot use this model: gpt-9. Available models: auto, gpt-5-mini", errors.ModelUnavailable, 404),
    (
        "ActionRequiredError: Named models unavailable Free plans can only use Auto. Switch to Auto or upgrade plans.",
        errors.ModelUnavailable,
        404,
    ),
    (USAGE_LIMIT, errors.AgentQuotaExhausted, 429),
    ("ActionRequiredError: You've reached your usage limit", errors.AgentQuotaExhausted, 429),
    ("RetriableError: [resource_exhausted] Error", errors.AgentOverloaded, 429),
    ("ConnectError: [resource_exhausted] Error", errors.AgentOverloaded, 429),
    ("T: [resource_exhausted] Error", errors.AgentOverloaded, 429),
    ("S: [resource_exhausted] Error", errors.AgentOverloaded, 429),
    ("RetriableError: [unavailable] getaddrinfo ENOTFOUND agentn.global.api5.cursor.sh", errors.AgentUnreachable, 502),
    ("T: [canceled] http/2 stream closed with error code CANCEL (0x8)", errors.AgentUnreachable, 502),
    ("RetriableError: PING timed out", errors.AgentUnreachable, 502),
    ("RetriableError: [internal] Failed to run step, exceeded max retries", errors.AgentUnreachable, 502),
    ("T: [internal] Failed to run step, exceeded max retries", errors.AgentUnreachable, 502),
    (
        'Failed to claim persistent session for chat "x": Persistent-session chat ID must be a UUID',
        errors.SessionLost,
        404,
    ),
    ('Failed to resume chat "id": the store is corrupt', errors.SessionLost, 404),
    ("Error: No prompt provided for print mode", errors.AgentMisconfigured, 500),
    ("Error: Your team administrator has disabled the 'Run Everything' option.", errors.AgentMisconfigured, 500),
    ("Sandbox mode is enabled but not available on this system", errors.AgentMisconfigured, 500),
    ("error: unknown option '--stream-partial-outputs'", errors.AgentMisconfigured, 500),
    ("Aborting operation...", errors.RunCancelled, 499),
    ("Aborting operation...\nOperation cancelled", errors.RunCancelled, 499),
]


@pytest.mark.parametrize(("words", "error", "status"), LAST_WORDS, ids=[words[:40] for words, *_ in LAST_WORDS])
def test_the_agents_last_words_say_what_went_wrong(words: str, error: type[errors.AgentError], status: int) -> None:
    for text in (words, f"some line before\n{words}\n", words.upper()):
        found = failures.known_failure(text)
        assert type(found) is error
        assert found.failure().status == status
        assert type(failures.failure_of(text)) is error


def test_the_message_tells_what_to_do_and_the_details_are_the_agents_own_words() -> None:
    failure = failures.failure_of(f"{USAGE_LIMIT}\n").failure()
    assert failure.details == USAGE_LIMIT
    assert failure.message.startswith("The Cursor account has reached its usage limit; wait for its reset")
    assert failure.message.endswith("The agent says: Your limits reset when your monthly cycle ends on 10/2/2026.")


def test_a_message_quotes_the_line_that_says_what_is_wrong() -> None:
    line = "ActionRequiredError: You've reached your usage limit, resets 10/2"
    assert failures.failure_of(f"Warning: old\n{line}\nmore").failure().message.endswith(f"The agent says: {line}")
    option = failures.failure_of("error: unknown option '--frob'").failure()
    assert option.message.endswith("one of its options. The agent says: error: unknown option '--frob'")
    long = failures.failure_of(f"error: unknown option '{'x' * 9000}'").failure()
    assert len(long.message) < 400
    assert failures.quoting("It failed.", " \n ") == "It failed."


NAMES = ["auto", "gpt-5.4-nano-none", "gpt-5.3-codex-low", "claude-opus-4-8-high", "claude-sonnet-5"]


def test_a_model_that_is_unknown_is_named_with_the_nearest_ones() -> None:
    words = f"Cannot use this model: gpt-5.4-nona. Available models: {', '.join(NAMES)}"
    failure = failures.failure_of(f"\x1b[31m{words}\x1b[0m\n").failure()
    assert (failure.code, failure.status, failure.param) == ("model_not_found", 404, "model")
    assert failure.details == words
    assert "gpt-5.4-nona" in failure.message
    assert "gpt-5.4-nano-none" in failure.message
    assert "sonnet" not in failure.message


@pytest.mark.parametrize("end", ["", ".", ". Available models: ", ". Available models: auto, gpt-5"])
def test_a_model_is_named_where_nothing_is_like_it(end: str) -> None:
    message = failures.failure_of(f"Cannot use this model: zzz-1.5{end}\nand more").failure().message
    assert "zzz-1.5'" in message
    assert "auto" not in message


def test_a_model_that_is_not_named_is_unknown_all_the_same() -> None:
    assert "--list-models" in failures.failure_of("Cannot use this model").failure().message


def test_an_absurd_name_is_not_repeated_in_full() -> None:
    message = failures.failure_of(f"Cannot use this model: {'x' * 100_000}. Available models: auto").failure().message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("Opus", ["claude-opus-4-8-high"]),
        ("OPUS 4.8", ["claude-opus-4-8-high"]),
        ("claude", ["claude-sonnet-5", "claude-opus-4-8-high"]),
        ("gpt-5", ["gpt-5.4-nano-none", "gpt-5.3-codex-low"]),
        ("gpt-5.3-kodex", ["gpt-5.3-codex-low", "gpt-5.4-nano-none"]),
        ("quick", ["auto"]),  # what else it is called
        ("zzz", []),
        ("", []),
        ("!", []),
    ],
)
def test_the_likeliest_names_come_first(wanted: str, names: list[str]) -> None:
    calls = {name: ["Quick and good"] if name == "auto" else [] for name in NAMES}
    assert failures.nearest_names(wanted, calls) == names


def test_at_most_so_many_names_are_offered() -> None:
    names = ["gpt-1", "gpt-22", "gpt-333", "gpt-4444"]
    assert failures.nearest_names("gpt", dict.fromkeys(names, ())) == names[:3]


def test_colours_are_no_part_of_the_details() -> None:
    assert failures.failure_of("\x1b[33m⚠ Warning: The provided API key is invalid.\x1b[0m\r\n").details == (
        "⚠ Warning: The provided API key is invalid."
    )
    assert failures.failure_of("\x1b[1;31mBoom\x1b[0m").details == "Boom"


@pytest.mark.parametrize("words", ["", "Segmentation fault", "TypeError: x is not a function"])
def test_unknown_last_words_are_a_crash_that_keeps_them(words: str) -> None:
    assert failures.known_failure(words) is None
    crash = failures.failure_of(words)
    assert type(crash) is errors.AgentCrashed
    assert crash.failure().retryable
    assert crash.details == words


def test_what_the_agent_reports_itself_keeps_its_words() -> None:
    error = failures.reported_failure("\x1b[31mThe moon\nis full\x1b[0m")
    assert (error.code, error.details) == ("agent_failed", "The moon\nis full")
    assert "The moon is full" in str(error)
    assert failures.reported_failure("You've reached your usage limit").code == "insufficient_quota"
    assert "no reason" in str(failures.reported_failure(""))


@pytest.mark.parametrize("text", ["notes about http/2", "this name is already in use", "the usage limit of the API"])
def test_words_that_anybody_might_write_are_no_failure(text: str) -> None:
    assert failures.known_failure(text) is None


def test_of_long_last_words_the_beginning_and_the_end_are_kept() -> None:
    details = failures.failure_of("the start " + "x " * 9000 + "the end").failure().details
    assert details.startswith("the start x")
    assert details.endswith("x the end")
    assert len(details) <= 2003


def test_of_long_last_words_those_that_say_what_is_wrong_are_kept() -> None:
    noise = "some line of a log\n" * 500
    details = failures.failure_of(f"{noise}{USAGE_LIMIT}\n{noise}").failure().details
    assert details.startswith(USAGE_LIMIT)


@pytest.mark.parametrize("error", [errors.AgentOverloaded, errors.AgentUnreachable, errors.AgentCrashed])
def test_what_may_pass_by_itself_is_worth_another_try(error: type[errors.AgentError]) -> None:
    assert error("…").failure().retryable


def test_too_much_output_is_an_error_that_names_the_limit() -> None:
    assert "more than 7 bytes; ask for less at a time, or raise `max_output_bytes`" in str(failures.output_too_large(7))
    assert "a line of more than 7 bytes" in str(failures.line_too_long(7))


# --- A failure that is the last text of a turn -----------------------------------------------------


def read(*chunks: str) -> tuple[str, str]:
    """What was said, and the failure's code."""
    watch = failures.TrailerWatch()
    said = "".join(map(watch.push, chunks))
    error = watch.finish()
    return said, error.code if error else ""


@pytest.mark.parametrize(
    ("trailer", "code"),
    [
        ("RetriableError: [resource_exhausted] Error", "agent_overloaded"),
        ("RetriableError: [unavailable] PING timed out", "agent_unreachable"),
        ("RetriableError: something new", "agent_failed"),
        ("NonRetriableError: something new", "agent_misconfigured"),
        ("NonRetriableError: [unauthenticated] Error", "agent_unauthenticated"),
        ("ActionRequiredError: something new", "agent_misconfigured"),
        ("ActionRequiredError: You've reached your usage limit", "insufficient_quota"),
        ("CancelledError: [canceled] This operation was aborted", "cancelled"),
        ("[unauthenticated] Error", "agent_unauthenticated"),
        ("[unauthenticated]", "agent_unauthenticated"),
        ("[data_loss] Error", "agent_failed"),
        ("CancelledError", "cancelled"),
        ("NonRetriableError", "agent_misconfigured"),
        ("[permission_denied] Error", "agent_misconfigured"),
        ("T: [failed_precondition] Error", "agent_misconfigured"),
        ("[not_found] Error", "agent_misconfigured"),
        ("RetriableError: [not_found] Error", "agent_failed"),
        ("T: [internal] Failed to run step, exceeded max retries", "agent_unreachable"),
        ("You've hit your usage limit\nfallbackModel:", "insufficient_quota"),
        ("ConnectError: something new", "agent_failed"),
        ("RetriableError", "agent_failed"),
    ],
)
def test_a_failure_is_not_said(trailer: str, code: str) -> None:
    assert read(f"\n\nError: {trailer}") == ("", code)
    assert read("Some", " text.", f"\n\nError: {trailer}", "") == ("Some text.", code)
    assert read(f"\n\nError: {trailer}", " is what it printed.") == (f"\n\nError: {trailer} is what it printed.", "")
    assert read("It printed", *f"\n\nError: {trailer}")[1] == ""  # a model's words come in pieces


@pytest.mark.parametrize(
    ("sentence", "code"),
    [
        ("Please sign in to continue", "agent_unauthenticated"),
        ("Upgrade your plan to continue", "insufficient_quota"),
        ("Add a payment method to continue", "insufficient_quota"),
        ("Check your settings to continue", "agent_misconfigured"),
    ],
)
def test_a_refused_account_is_a_sentence_that_is_the_whole_answer(sentence: str, code: str) -> None:
    assert read(sentence) == read(f"{sentence}\n") == ("", code)
    assert read("The page says: ", sentence) == (f"The page says: {sentence}", "")
    assert read(sentence, ".") == (f"{sentence}.", "")
    assert read(f"{sentence}.") == (f"{sentence}.", "")
    watch = failures.TrailerWatch()
    watch.release()  # something else came before: the service does answer
    assert watch.push(sentence) == sentence


@pytest.mark.parametrize(
    "whole",
    [
        "",
        "\n\nError: what a program prints",
        "\n\nError: what a program prints\n",
        "```\n\nError: Not logged in\n```",
        "\n\nError: Not logged in\n```",
        "\n\nError: TypeError: x is not a function",
        "\n\nError: [x] is checked",
        "\n\nError: RetriableError: " + "x" * 5000,
        "\n\nErr",
    ],
)
def test_other_text_is_passed_on(whole: str) -> None:
    assert read(whole) == read(*whole) == (whole, "")


@pytest.mark.parametrize("before", ["", "Error: ", "\nError: "])
@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("[unauthenticated] Please sign in to continue", "agent_unauthenticated"),
        ("ActionRequiredError: Upgrade your plan to continue", "insufficient_quota"),
        ("RetriableError: [unavailable] x", "agent_unreachable"),
    ],
)
def test_the_only_chunk_of_a_turn_may_be_a_failure_without_the_mark(before: str, failure: str, code: str) -> None:
    whole = f"{before}{failure}"
    assert read(whole) == ("", code)
    assert read(*whole) == (whole, "")
    assert read("It says: ", whole) == (f"It says: {whole}", "")


def test_text_is_said_as_soon_as_it_can_be() -> None:
    watch = failures.TrailerWatch()
    failure = "\n\nError: T: [internal] x"
    assert [watch.push(piece) for piece in ("a", "\n\n", failure, failure, "c")] == [
        "a", "\n\n", "", failure, f"{failure}c",
    ]  # fmt: skip
    watch.push(failure)
    assert watch.release() == failure


PIECES = ["\n\n", "a", "\n\nError: T: [internal] x", "Please sign in to continue", "\n\nError: [unauthenticated]"]


@given(st.lists(st.sampled_from(PIECES), max_size=6))
def test_only_the_last_chunk_can_be_a_failure(chunks: list[str]) -> None:
    said, code = read(*chunks)
    assert said == "".join(chunks[:-1] if code else chunks)
