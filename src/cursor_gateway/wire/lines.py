"""Split bytes into lines."""


class LineSplitter:
    """Splits on LF only, and before decoding: U+2028 may be unescaped in a JSON string, and a chunk may end inside a
    UTF-8 sequence.
    """

    def __init__(self) -> None:
        self.rest: list[bytes] = []  # of an incomplete line; joined once, so that a long line takes linear time

    def push(self, chunk: bytes, /) -> list[bytes]:
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if not lines:
            if rest:
                self.rest.append(rest)
            return lines
        if self.rest:
            self.rest.append(lines[0])
            lines[0] = b"".join(self.rest)
            self.rest = []
        if rest:
            self.rest.append(rest)
        return lines

    def flush(self) -> list[bytes]:
        """The last line may lack its LF."""
        return self.push(b"\n") if self.rest else []
