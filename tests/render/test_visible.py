"""Nothing that the agent says can steer the terminal."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.render.visible import visible, visible_json, visible_line, visible_output


@given(st.text(st.characters(codec=None)))
def test_no_control_character_is_left_but_tabs_and_line_feeds(text: str) -> None:
    for shown in (visible(text), visible_output(text), visible_line(text)):
        assert not [c for c in shown if (ord(c) < 32 and c not in "\t\n") or 127 <= ord(c) < 160]
        shown.encode()


def test_escape_sequences_are_taken_out() -> None:
    assert (
        visible("\x1b[1;31mred\x1b[0m \x1b]0;title\x07and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\") == "red and link"
    )


def test_a_sequence_without_an_end_hides_nothing() -> None:
    assert visible("\x1b]0;never ended") == "0;never ended"
    assert visible("a\x1b") == "a␛"


def test_other_controls_are_shown() -> None:
    assert visible("bell\x07 nul\x00 del\x7f c1\x9b31m") == "bell␇ nul␀ del␡ c1�31m"


def test_text_cannot_be_made_to_read_backwards() -> None:
    assert "\u202e" not in visible("access\u202e level")


def test_windows_line_ends_are_line_ends() -> None:
    assert visible("a\r\nb") == "a\nb"


def test_a_line_that_was_written_over_shows_its_last_state() -> None:
    assert visible_output(" 10%\r 50%\r100%\ndone\r\n") == "100%\ndone\n"


def test_one_line_is_one_line() -> None:
    assert visible_line(" a\n\tb\r\n c ") == "a b c"


HIDDEN = {0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@given(st.dictionaries(st.text(), st.lists(st.text() | st.sampled_from([chr(code) for code in sorted(HIDDEN)]))))
def test_json_keeps_its_value_and_hides_nothing(value: dict[str, list[str]]) -> None:
    json = msgspec.json.encode(value)
    for form in (json, msgspec.json.format(json, indent=2)):
        shown = visible_json(form)
        assert msgspec.json.decode(shown) == value
        assert not HIDDEN & {ord(c) for c in shown.decode()}


def test_other_json_stays_as_it_is() -> None:
    json = msgspec.json.encode({"é": "日本 \u2028 \u200d \xa0 \\ \x1b"})
    assert visible_json(json) == json
