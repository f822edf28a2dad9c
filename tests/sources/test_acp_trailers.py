"""A failure at the end of the text: a whole chunk of its own, after which nothing comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.sources.acp.trailers import TrailerWatch


def read(*chunks: str) -> tuple[str, str]:
    """What was said, and the failure's code."""
    watch = TrailerWatch()
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
    watch = TrailerWatch()
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
    watch = TrailerWatch()
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
