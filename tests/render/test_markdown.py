"""Markdown is drawn whole, and what is drawn early is drawn the same."""

from io import StringIO

import pytest

from cursor_gateway.render.listing import AgentMarkdown, finished_blocks
from cursor_gateway.render.terminal import make_console


def drawn(text: str, width: int = 60) -> str:
    out = StringIO()
    make_console(out, plain=False, width=width).print(AgentMarkdown(text))
    return out.getvalue()


def test_html_is_text_and_stays_in_sight() -> None:
    assert "List<String>" in drawn("a List<String> here")
    assert "<details>" in drawn("<details>\nhidden?\n</details>")


def test_addresses_are_in_sight() -> None:
    assert "https://evil.example" in drawn("[click](https://evil.example)")
    assert "https://a.example/p.png" in drawn("![shot](https://a.example/p.png)")
    assert drawn("<https://a.example>").count("a.example") == 1
    assert "\x1b]8" not in drawn("[click](https://evil.example)")


def test_an_entity_cannot_smuggle_in_what_visible_takes_out() -> None:
    shown = drawn("a &#27;[2J &#x9b;31m &#8238; &#13; b &lt;c&gt;")
    assert not {"\x1b[2J", "\x9b", "\u202e", "\r"} & {shown[i : i + n] for i in range(len(shown)) for n in (1, 4)}
    assert "<c>" in shown


def test_headings_stand_on_the_left() -> None:
    assert drawn("# Title").lstrip("\x1b[0123456789;m").startswith("Title")


def test_code_without_a_language_is_code() -> None:
    assert "  a  =  1" in drawn("```\na  =  1\n```")


def test_no_blank_line_before_or_after() -> None:
    for text in ("- a\n- b", "a\n\n---", "> quote", "| a |\n|---|\n| b |", "1. a\n2. b\n"):
        lines = drawn(text).split("\n")
        assert lines[0].strip()
        assert lines[-1] == ""


def test_text_without_ink_draws_nothing() -> None:
    assert drawn(" \n\n") == ""


def test_deep_nesting_is_survived() -> None:
    assert "deep" in drawn("> " * 60 + "deep", width=30)
    assert "deep" in drawn("".join("  " * level + "- x\n" for level in range(60)) + "\ndeep", width=20)


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("", ""),
        ("one paragraph", ""),
        ("one paragraph\n\n", ""),
        ("one\n\ntwo", ""),  # "two" is not a whole line yet
        ("one\n\ntwo\n", "one\n\n"),
        ("# head\ntext\n", "# head\n"),
        ("- a\n\n- b\n\n  more of b\n", ""),
        ("1. a\n\n2", ""),  # will be "2."
        ("- a\n\nnot the list\n", "- a\n\n"),
        ("```\ncode\n\n# no heading\n", ""),
        ("```\ncode\n```\nafter\n", "```\ncode\n```\n"),
        ("a | b\n--|--\n1 | 2\n", ""),
        ("a\n\nb\n\nc\n\nd\n", "a\n\nb\n\nc\n\n"),
        ("> quote\nlazy\n\nafter\n", "> quote\nlazy\n\n"),
    ],
)
def test_a_block_is_finished_when_another_has_begun(text: str, finished: str) -> None:
    assert text[: finished_blocks(text)] == finished
