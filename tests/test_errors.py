"""Errors state facts: a code nobody else has, a status, the message as it was given."""

import errno
import re
from collections.abc import Iterator

import msgspec
import pytest

from cursor_gateway import errors


def descendants(of: type[errors.GatewayError]) -> Iterator[type[errors.GatewayError]]:
    for child in of.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from descendants(child)


EVERY = list(descendants(errors.GatewayError))
CONCRETE = [error for error in EVERY if "code" in vars(error)]


def test_exactly_the_errors_that_are_raised_have_a_code() -> None:
    assert {error for error in EVERY if hasattr(error, "code")} == set(CONCRETE)
    assert {error for error in EVERY if not error.__subclasses__()} <= set(CONCRETE)


@pytest.mark.parametrize("error", CONCRETE)
def test_an_error_that_says_when_to_retry_is_worth_retrying(error: type[errors.GatewayError]) -> None:
    assert error.retryable or error.retry_after is None


@pytest.mark.parametrize("error", CONCRETE)
def test_an_error_is_somebodys_fault(error: type[errors.GatewayError]) -> None:
    """The caller's, the agent's, or our own."""
    assert issubclass(error, errors.RequestError | errors.AgentError) or error in (
        errors.GatewayFault,
        errors.GatewayRestarted,
        errors.HistoryDamaged,
        errors.HostExhausted,
        errors.NoRunner,
        errors.QueueExpired,
        errors.RunnerLost,
        errors.ShuttingDown,
        errors.StoreUnavailable,
        errors.TooManyConnections,
    )
    assert error.source == ("agent" if issubclass(error, errors.AgentError) else "gateway")


@pytest.mark.parametrize("error", CONCRETE)
def test_the_status_says_whose_fault_it_is(error: type[errors.GatewayError]) -> None:
    if issubclass(error, errors.RequestError):
        assert error.status < 500
    elif not issubclass(error, errors.AgentError) and error is not errors.HistoryDamaged:  # which no retry changes
        assert error.status >= 500


@pytest.mark.parametrize("error", CONCRETE)
def test_a_code_is_a_word_for_programs_and_a_status_is_an_http_error(error: type[errors.GatewayError]) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)
    assert 400 <= error.status <= 599


def test_no_two_errors_share_a_code() -> None:
    codes = [error.code for error in CONCRETE]
    assert len(set(codes)) == len(codes)


def test_of_the_callers_errors_only_those_of_the_moment_are_worth_another_try() -> None:
    """The same request may do later; what is wrong with the others is in the request itself."""
    worth_it = {error for error in CONCRETE if issubclass(error, errors.RequestError) and error.retryable}
    assert worth_it == {
        errors.RequestTooSlow,
        errors.ConversationBusy,
        errors.TooManyRuns,
        errors.TooManyRequests,
        errors.QueueFull,
    }


@pytest.mark.parametrize("error", CONCRETE)
def test_the_time_to_try_again_is_in_the_future(error: type[errors.GatewayError]) -> None:
    if error.retry_after is not None:
        assert error.retryable
        assert error.retry_after >= 1
        assert error.status in (409, 429, 503)


def test_too_many_and_not_now_say_when_to_try_again() -> None:
    """Clients honour `Retry-After` on these; without it they guess. A usage limit has no such time."""
    for error in CONCRETE:
        if error.status in (429, 503) and error.retryable:
            assert error.retry_after is not None


@pytest.mark.parametrize("error", CONCRETE)
def test_a_failure_carries_the_facts_of_its_error(error: type[errors.GatewayError]) -> None:
    raised = error("do this", details="because of that", param="model")
    assert str(raised) == "do this"
    assert raised.failure() == errors.Failure(
        code=error.code,
        message="do this",
        status=error.status,
        retryable=error.retryable,
        details="" if issubclass(error, errors.StoreUnavailable) else "because of that",  # for the operator alone
        source=error.source,
        param="model",
        retry_after=error.retry_after,
    )
    bare = error("do this").failure()
    assert (bare.details, bare.param) == ("", None)


def test_every_error_is_caught_by_its_branch() -> None:
    for error in CONCRETE:
        with pytest.raises(errors.GatewayError, match=r"^why$"):
            raise error("why")


def test_an_unknown_model_is_refused_with_the_nearest_or_where_to_look() -> None:
    near, far = errors.unknown_model("opsu", ["opus", "opus-fast"]), errors.unknown_model("x\n", [])
    assert "'opsu'" in str(near)
    assert "did you mean opus, opus-fast?" in str(near)
    assert "`cursor-gateway models` lists" in str(far)
    assert "\n" not in str(far)
    assert near.failure().param == "model"


def test_a_failure_may_pass_when_it_is_retryable_or_somebody_broke_it_off() -> None:
    passing = {error.code for error in CONCRETE if error("why").failure().is_transient}
    assert passing == {error.code for error in CONCRETE if error.retryable} | {"cancelled"}


def test_which_failures_another_way_to_the_agent_may_mend() -> None:
    mendable = {error.code for error in CONCRETE if error("why").failure().is_source_failure}
    assert mendable == {"agent_crashed", "agent_misconfigured", "agent_missing", "agent_timed_out", "agent_unreachable"}


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENOSPC, "Full"),
        RuntimeError("can't start new thread"),
    ],
)
def test_what_the_system_refuses_for_now_is_worth_another_try(error: Exception) -> None:
    result = errors.host_exhausted(error)
    assert result is not None
    assert str(error.args[-1]) in str(result)
    assert result.failure().is_transient


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "None"), OSError("odd"), RuntimeError("odd"), ValueError()])
def test_what_will_be_the_same_the_next_time_is_not_the_systems_lack(error: Exception) -> None:
    assert errors.host_exhausted(error) is None


def test_a_model_is_never_suggested_in_its_own_place() -> None:
    assert "did you mean mock-2, mock-10?" in str(errors.unknown_model("mock-1", ["mock-2", "mock-10"]))
    assert "did you mean mock-1?" in str(errors.unknown_model("Mock-1", ["mock-1"]))
    assert (
        str(errors.unknown_model("mock-1", []))
        == "Unknown model 'mock-1'; `cursor-gateway models` lists the known ones."
    )
    refused = str(errors.unknown_model("mock-1", ["mock-1", "mock-2"]))
    assert "lists the model 'mock-1' but rejects it" in refused
    assert "did you mean" not in refused


def test_details_keep_their_lines_and_no_control_character_stays_hidden() -> None:
    said = errors.AgentFailed("why", details="one\r\n\ttwo\x1b[2J\x00 \u202ethree").failure()
    assert said.details == "one\n\ttwo\\x1b[2J\\x00 \\u202ethree"
    assert errors.AgentFailed("one\ntwo").failure().message == "one\\ntwo"


def test_a_long_text_loses_its_middle_but_no_word_is_cut_in_two() -> None:
    words = " ".join(f"word{number:04}" for number in range(2000))
    details = errors.AgentFailed("why", details=words).failure().details
    assert 1800 < len(details) <= 2003
    head, _, tail = details.partition(" … ")
    assert words.startswith(f"{head} ")
    assert words.endswith(f" {tail}")
    unbroken = errors.AgentFailed("x" * 5000).failure().message
    assert unbroken == "x" * 500 + " … " + "x" * 500


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("authorization: Bearer abc.def-123", "authorization: Bearer [redacted]"),
        ("connect to http://me:pass@proxy:3128 failed", "connect to http://[redacted]@proxy:3128 failed"),
        ("token eyJhbGciOi.eyJzdWIiOi.c2lnbg is expired", "token [redacted] is expired"),
        ("see https://cursor.com/docs, or mail me@example.com", "see https://cursor.com/docs, or mail me@example.com"),
    ],
)
def test_credentials_are_redacted(said: str, expected: str) -> None:
    failure = errors.AgentFailed(said, details=said).failure()
    assert (failure.message, failure.details) == (expected, expected)


@pytest.mark.parametrize(
    "error", [errors.AgentFailed("why", details="d"), errors.StoreUnavailable("away"), errors.GatewayFault("bug")]
)
def test_an_error_is_made_again_of_its_failure(error: errors.GatewayError) -> None:
    failure = error.failure()
    again = errors.error_of(failure)
    assert type(again) is type(error)
    assert again.failure() == failure


def test_a_failure_that_is_not_known_is_the_gateways_fault() -> None:
    failure = msgspec.structs.replace(errors.AgentFailed("why").failure(), code="of another version")
    assert isinstance(errors.error_of(failure), errors.GatewayFault)


def test_what_has_begun_is_not_to_be_retried() -> None:
    failure = errors.StoreUnavailable("away").failure()
    assert failure.retryable
    assert (failure.final().retryable, failure.final().retry_after) == (False, None)
    assert failure.final().message == failure.message


def test_files_that_cannot_be_written_are_a_full_disk_or_a_fault_of_the_gateway() -> None:
    assert isinstance(errors.unwritable(OSError(errno.ENOSPC, "No space left on device")), errors.HostExhausted)
    refused = errors.unwritable(PermissionError(errno.EACCES, "Permission denied"))
    assert isinstance(refused, errors.GatewayFault)
    assert "Permission denied" in str(refused)
