"""A failure at the end of the text, in any pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.sources.acp.trailers import TrailerWatch


def read(*pieces: str) -> tuple[str, str]:
    """What was said, and the failure's code."""
    watch = TrailerWatch()
    said = "".join(map(watch.push, pieces))
    rest, error = watch.finish()
    return said + rest, error.code if error else ""


@pytest.mark.parametrize(
    ("trailer", "code"),
    [
        ("RetriableError: [resource_exhausted] Error", "agent_overloaded"),
        ("T: [internal] Failed to run step, exceeded max retries", "agent_unreachable"),
        ("You've hit your usage limit\nfallbackModel:", "insufficient_quota"),
        ("ConnectError: something new", "agent_failed"),
    ],
)
def test_a_failure_is_not_said(trailer: str, code: str) -> None:
    whole = f"Some text.\n\nError: {trailer}"
    assert read(whole) == read(*whole) == ("Some text.", code)


@pytest.mark.parametrize(
    "whole",
    [
        "",
        "\n\nError: what a program prints",
        "\n\nError: what a program prints\n",
        "\n\nError: RetriableError: [unavailable] x\n\nError: another",
        "```\n\nError: Not logged in\n```",
        "\n\nError: RetriableError: " + "x" * 5000,
        "\n\nErr",
    ],
)
def test_other_text_is_passed_on(whole: str) -> None:
    assert read(whole) == read(*whole) == (whole, "")


def test_text_is_said_as_soon_as_it_can_be() -> None:
    watch = TrailerWatch()
    assert [watch.push(piece) for piece in ("a", "\n", "\nb", "\n\nError: x", "\n", "c")] == [
        "a", "", "\n\nb", "", "\n\nError: x", "\nc",
    ]  # fmt: skip
    watch.push("\n\n")
    assert watch.release() == "\n\n"


PIECES = [
    "\n",
    "\n\n",
    "Error: ",
    "RetriableError: ",
    "T: ",
    "[internal] ",
    "a",
    "```",
    "Not logged in",
    "\n\nError: T: ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.integers(1, 5))
def test_the_pieces_do_not_matter(pieces: list[str], size: int) -> None:
    whole = "".join(pieces)
    assert read(*(whole[at : at + size] for at in range(0, len(whole), size))) == read(whole)
