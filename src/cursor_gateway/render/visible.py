"""Make the agent's text safe to print on a terminal.

What an agent says or reads may contain escape sequences: they could move the cursor, rename the window
or hide what a file really contains. Sequences are removed, other control characters are shown.
"""

import re

SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links, the clipboard
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b[ -/]*[0-~]"
)
_DIRECTION = range(0x202A, 0x202F), range(0x2066, 0x206A)  # can make code look different from what it is
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys((code for codes in (range(0x80, 0xA0), *_DIRECTION) for code in codes), 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),  # half a character cannot be encoded
}


_HIDDEN = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")  # the same, as UTF-8


def visible(text: str) -> str:
    return SEQUENCES.sub("", text.replace("\r\n", "\n")).translate(_SHOWN)


def visible_output(output: str) -> str:
    """The output of a command. Of a line that was overwritten, as progress bars do, only the last state."""
    lines = SEQUENCES.sub("", output).split("\n")
    return visible("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def visible_line(text: str) -> str:
    """All of it in one line."""
    return visible(" ".join(text.split()))


def visible_json(json: bytes) -> bytes:
    """The same value: characters that JSON allows in a string, but a terminal would obey, are escaped."""
    return _HIDDEN.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), json)
