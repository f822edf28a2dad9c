"""Render documents, or document events, as semantic HTML that cannot do harm.

Nothing here reads a clock or a file but its own stylesheet, and no script is needed to read what it writes.
"""

from cursor_gateway.render.html.answers import render_answer, render_document
from cursor_gateway.render.html.live import Added, Appended, Fragment, LiveRenderer, Replaced
from cursor_gateway.render.html.page import page_style, render_page
from cursor_gateway.render.html.work import Do, Job, Rendered, perform, render_changes

__all__ = [
    "Added",
    "Appended",
    "Do",
    "Fragment",
    "Job",
    "LiveRenderer",
    "Rendered",
    "Replaced",
    "page_style",
    "perform",
    "render_answer",
    "render_changes",
    "render_document",
    "render_page",
]
