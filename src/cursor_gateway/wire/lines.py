"""Bytes in, lines out."""


class LineSplitter:
    """Splits on LF only, and before decoding: U+2028 may stand raw inside a JSON string,
    and a chunk may end inside a UTF-8 sequence. Blank lines are dropped.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # joined once per line, so that a long line costs linear time

    def push(self, chunk: bytes, /) -> list[bytes]:
        if b"\n" not in chunk:
            if chunk:
                self._rest.append(chunk)
            return []
        *lines, rest = chunk.split(b"\n")
        if self._rest:
            self._rest.append(lines[0])
            lines[0] = b"".join(self._rest)
            self._rest = []
        if rest:
            self._rest.append(rest)
        return [line for line in lines if line and not line.isspace()]

    def flush(self) -> list[bytes]:
        """The last line may lack its LF."""
        return self.push(b"\n")
