"""Escape the agent's text for HTML, and show invisible characters."""

from html import escape

from cursor_gateway.render.visible import visible, visible_line

# What takes no room on a screen could make two names look like one. The joiners U+200C and U+200D stay: emoji and
# some scripts are written with them.
_UNSEEN = dict.fromkeys(
    [
        *(0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB),
        *range(0x2060, 0x2066),
        *range(0x206A, 0x2070),
        *range(0xE0000, 0xE0080),
    ],
    0xFFFD,
)


def prose(text: str) -> str:
    return escape(visible(text))


def prose_line(text: str) -> str:
    return escape(visible_line(text))


def exact(text: str) -> str:
    """Of code, paths, commands and names: what cannot be seen is shown as a mark."""
    return escape(visible(text).translate(_UNSEEN))


def exact_line(text: str) -> str:
    return exact(text).replace("\n", "\u240a")


def label(text: str, longest: int = 160) -> str:
    """A name for screen readers."""
    words = " ".join(text.split())
    return exact(words if len(words) <= longest else f"{words[: longest - 1]}…")


def literal(text: str, kind: str = "") -> str:
    """A name, a path or a value, in one line."""
    return f"<code{_class(kind)}>{exact_line(text)}</code>"


def span(html: str, kind: str) -> str:
    return f"<span{_class(kind)}>{html}</span>" if html else ""


def unseen(html: str) -> str:
    """For screen readers only."""
    return span(html, "unseen")


def plain(text: str) -> str:
    """Lines as they are. Without `code`, `pre` would swallow a leading line feed."""
    return f'<pre class="plain"><code>{exact(text)}</code></pre>'


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
