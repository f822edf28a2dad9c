"""Errors state facts: a code nobody else has, a status, the message as it was given."""

import re
from collections.abc import Iterator

import pytest

from cursor_gateway import errors
from cursor_gateway.errors import AgentError, Failure, GatewayError, RequestError


def descendants(of: type[GatewayError]) -> Iterator[type[GatewayError]]:
    for child in of.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from descendants(child)


EVERY = list(descendants(GatewayError))
CONCRETE = [error for error in EVERY if not error.__subclasses__()]


def test_the_tree_in_the_documentation_lists_exactly_the_classes_with_their_statuses() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^[│├└─ ]*(\w+) +(?:(\d{3}) )? *\S", errors.__doc__.split("\n\n")[1], re.MULTILINE)
    classes: list[type[GatewayError]] = [GatewayError, *EVERY]
    expected = [(error.__name__, str(getattr(error, "status", ""))) for error in classes]
    assert sorted(drawn) == sorted(expected)


@pytest.mark.parametrize("error", CONCRETE)
def test_an_error_is_somebodys_fault(error: type[GatewayError]) -> None:
    assert issubclass(error, RequestError | AgentError)
    assert error.source == ("agent" if issubclass(error, AgentError) else "gateway")


@pytest.mark.parametrize("error", CONCRETE)
def test_a_code_is_a_word_for_programs_and_a_status_is_an_http_error(error: type[GatewayError]) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)
    assert 400 <= error.status <= 599


def test_no_two_errors_share_a_code() -> None:
    codes = [error.code for error in CONCRETE]
    assert len(set(codes)) == len(codes)


def test_an_error_of_the_caller_is_not_worth_another_try() -> None:
    assert not any(error.retryable for error in CONCRETE if issubclass(error, RequestError))


@pytest.mark.parametrize("error", CONCRETE)
def test_a_failure_carries_the_facts_of_its_error(error: type[GatewayError]) -> None:
    raised = error("do this", details="because of that")
    assert str(raised) == "do this"
    assert raised.failure() == Failure(
        code=error.code,
        message="do this",
        status=error.status,
        retryable=error.retryable,
        details="because of that",
        source=error.source,
    )
    assert error("do this").failure().details == ""


def test_every_error_is_caught_by_its_branch() -> None:
    for error in CONCRETE:
        with pytest.raises(GatewayError, match=r"^why$"):
            raise error("why")
