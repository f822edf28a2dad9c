"""What a program writes to a terminal in, what the reader of the terminal sees out."""

import re

_PIECES = re.compile(r"\x1b\[(?P<args>[0-9;?]*)(?P<verb>[A-Za-z])|(?P<end>\n)|(?P<back>\r)|(?P<text>[^\x1b\r\n]+)")


def screen(written: str, *, height: int) -> list[str]:
    """All lines, scrollback included. Fails on a sequence that is not known to be harmless, and when the cursor
    is sent to where it cannot go: into the scrollback."""
    lines = [""]
    row = column = 0
    position = 0
    while position < len(written):
        piece = _PIECES.match(written, position)
        assert piece, f"unexpected control sequence: {written[position : position + 20]!r}"
        position = piece.end()
        if piece["end"]:
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif piece["back"]:
            column = 0
        elif text := piece["text"]:
            lines[row] = lines[row].ljust(column)[:column] + text + lines[row][column + len(text) :]
            column += len(text)
        elif piece["verb"] == "A":
            row -= int(piece["args"] or 1)
            assert row > len(lines) - 1 - height, "the cursor left the screen"
        elif piece["verb"] == "K":
            assert piece["args"] == "2"
            lines[row] = ""
        else:
            assert piece["verb"] == "m" or piece["args"] == "?25", f"unexpected control sequence: {piece[0]!r}"
    return [line.rstrip() for line in lines]
