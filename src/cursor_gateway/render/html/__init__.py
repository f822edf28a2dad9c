"""Documents or document events in; semantic, harmless HTML, whole or in fragments, out.

Nothing here reads a clock or a file but its own stylesheet, and no script is needed to read what it writes.
"""

from cursor_gateway.render.html.documents import render_answer, render_document
from cursor_gateway.render.html.live import Added, Appended, Fragment, LiveRenderer, Replaced
from cursor_gateway.render.html.page import page_style, render_page

__all__ = [
    "Added",
    "Appended",
    "Fragment",
    "LiveRenderer",
    "Replaced",
    "page_style",
    "render_answer",
    "render_document",
    "render_page",
]
