"""Render Markdown that is still growing: the finished blocks once, the open rest again and again."""

from cursor_gateway.render.html.pieces import plain
from cursor_gateway.render.html.work import Blocks, Do, OpenText, Rendered
from cursor_gateway.render.visible import visible

_LONG = 8_000  # characters of one block


class GrowingMarkdown:
    """The open rest is rendered again when it has grown by an eighth, or by half if it is long, so a text costs time
    by its length even if all of it is one block.

    `is_whole` says whether the HTML so far, with that of the rest, is the HTML of the whole. It is not when link
    reference definitions reach over blocks, nor after something took too long to render: from then on the open text
    is shown as it is written.
    """

    def __init__(self, do: Do) -> None:
        self._do = do
        self._pieces: list[str] = []
        self._size = 0
        self._due = 1
        self._is_plain = False
        self.is_whole = True

    def push(self, text: str) -> Rendered | None:
        """The finished blocks and the open rest. None: it is not worth rendering yet."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size < self._due or self._is_plain:
            return None
        written = "".join(self._pieces)
        done = self._do(OpenText(written))
        if done is None:
            self._is_plain, self.is_whole = True, False
            return Rendered(["", plain(written)], continues=True)
        self._pieces, self._size = [done.rest], len(done.rest)
        self._due = self._size + max(self._size // (8 if self._size < _LONG else 2), 16)
        self.is_whole = self.is_whole and not done.has_references
        return done

    def finish(self) -> str:
        """The HTML of what was open."""
        done = self._do(Blocks(visible("".join(self._pieces)))) if self.is_whole else None
        self.is_whole = self.is_whole and done is not None and not done.has_references
        return done.html[0] if done is not None else ""
