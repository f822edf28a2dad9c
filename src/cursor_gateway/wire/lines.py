"""Split bytes into lines."""

from io import BytesIO


class LineSplitter:
    """Splits on LF only, and before decoding: U+2028 may be unescaped in a JSON string, and a chunk may end inside a
    UTF-8 sequence.
    """

    def __init__(self, *, keeps_ends: bool = False) -> None:
        """`keeps_ends`: a line has its LF, which readers of JSON skip; removing it copies the line."""
        self.rest: list[bytes] = []  # of an incomplete line; joined once, so that a long line takes linear time
        self._keeps_ends = keeps_ends

    def push(self, chunk: bytes, /) -> list[bytes]:
        lines = BytesIO(chunk).readlines()  # `split` looks at each byte, and takes five times as long
        rest = lines.pop() if lines and not chunk.endswith(b"\n") else b""
        if lines and self.rest:
            self.rest.append(lines[0])
            lines[0] = b"".join(self.rest)
            self.rest = []
        if rest:
            self.rest.append(rest)
        return lines if self._keeps_ends else [line[:-1] for line in lines]

    def flush(self) -> list[bytes]:
        """The last line may lack its LF."""
        return self.push(b"\n") if self.rest else []
