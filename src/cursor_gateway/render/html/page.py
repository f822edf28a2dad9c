"""Render a whole answer as one HTML file, with its style and without scripts."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.prompting.replies import decisions_in
from cursor_gateway.render.html.pieces import count, exact_line, plain, prose, prose_line
from cursor_gateway.render.html.work import Do, articles, perform
from cursor_gateway.render.looks import duration, tokens

_TITLE = 80  # characters


@cache
def page_style() -> str:
    """The one stylesheet, for pages that link it and for files that carry it."""
    return files("cursor_gateway.render.html").joinpath("style.css").read_text(encoding="utf-8")


def render_page(response: ChatResponse, *, prompt: str = "", title: str = "", do: Do = perform) -> str:
    """The heading is `title`, or else the first words of the prompt. A prompt that only tells the agent what somebody
    decided is a note."""
    note = "\n".join(decisions_in(prompt))
    title = title or _first_words(note or prompt) or "Answer"
    style = f"\n{page_style()}"
    section = f'<section class="prompt" aria-labelledby="prompt"><h2 id="prompt">Prompt</h2>{plain(prompt)}</section>\n'
    if note:
        section = f'<p class="note">{prose(note)}</p>\n'
    return _PAGE.format(
        policy=f"default-src 'none'; style-src 'sha256-{_hash(style)}'; base-uri 'none'; form-action 'none'",
        title=prose_line(title),
        style=style,
        facts="".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in _facts(response) if fact),
        prompt=section if prompt else "",
        documents="".join(articles(response.documents, do, answerable=False)) or "<p>The answer is empty.</p>\n",
    )


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body class="export">
<main>
<header class="page">
<h1>{title}</h1>
<dl class="facts">{facts}</dl>
</header>
{prompt}<section class="answer" aria-labelledby="answer">
<h2 id="answer">Answer</h2>
{documents}</section>
</main>
</body>
</html>
"""


def _facts(response: ChatResponse) -> list[tuple[str, str]]:
    calls = response.metadata.tool_call_count
    return [
        ("Model", "" if response.model == "unknown" else exact_line(response.model)),
        ("Mode", exact_line(response.mode)),
        ("Status", exact_line(response.status)),
        ("Time", _time(response.created)),
        ("Took", duration(response.metadata.duration_ms)),
        ("Tokens", tokens(response.usage)),
        ("Tools", count(calls, "call") if calls else ""),
        ("Id", f"<code>{exact_line(response.id)}</code>"),
    ]


def _time(created: str) -> str:
    time = exact_line(created)
    return f'<time datetime="{time}">{time.replace("T", " ").replace("Z", " UTC")}</time>' if time else ""


def _first_words(prompt: str) -> str:
    line = next((line for line in prompt.splitlines() if line.strip()), "").strip()
    return line if len(line) <= _TITLE else f"{line[: _TITLE - 1]}…"


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
