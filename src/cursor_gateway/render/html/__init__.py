"""Render documents, or document events, as semantic HTML that cannot do harm.

Nothing here reads a clock or a file but its own stylesheet, and no script is needed to read what it writes.
"""

from cursor_gateway.render.html.live import Added as Added
from cursor_gateway.render.html.live import Appended as Appended
from cursor_gateway.render.html.live import Fragment as Fragment
from cursor_gateway.render.html.live import LiveRenderer as LiveRenderer
from cursor_gateway.render.html.live import Replaced as Replaced
from cursor_gateway.render.html.work import Do as Do
from cursor_gateway.render.html.work import Job as Job
from cursor_gateway.render.html.work import Rendered as Rendered
from cursor_gateway.render.html.work import RenderedTurn as RenderedTurn
from cursor_gateway.render.html.work import page_style as page_style
from cursor_gateway.render.html.work import perform as perform
from cursor_gateway.render.html.work import render_answer as render_answer
from cursor_gateway.render.html.work import render_conversation as render_conversation
from cursor_gateway.render.html.work import render_document as render_document
from cursor_gateway.render.html.work import render_page as render_page
