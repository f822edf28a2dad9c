"""Render a whole answer, or a conversation, as one HTML file, with its style and without scripts."""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

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


class RenderedTurn(NamedTuple):
    """A turn of a conversation that is to be rendered."""

    prompt: str
    response: ChatResponse


def render_conversation(title: str, turns: Sequence[RenderedTurn], *, do: Do = perform) -> str:
    """A page to read: all prompts and answers, and nothing about where the agent worked."""
    sections = "".join(_turn(place, turn, do) for place, turn in enumerate(turns, 1))
    facts = f"<div><dt>Shared</dt><dd>read-only</dd></div><div><dt>Turns</dt><dd>{len(turns)}</dd></div>"
    return _page(title or "Conversation", facts, sections, _NO_ROBOTS)


def _turn(place: int, turn: RenderedTurn, do: Do) -> str:
    response = turn.response
    shown = _listed([fact for fact in _facts(response) if fact[0] in ("Model", "Time", "Took")])
    return (
        f"{_prompt_section(turn.prompt, f'prompt-{place}')}"
        f'<section class="answer" aria-labelledby="answer-{place}">\n<h2 id="answer-{place}">Answer</h2>\n'
        f'<dl class="facts">{shown}</dl>\n{_documents(response, do)}</section>\n'
    )


def render_page(response: ChatResponse, *, prompt: str = "", title: str = "", do: Do = perform) -> str:
    """The heading is `title`, or else the first words of the prompt. A prompt that only tells the agent what somebody
    decided is a note."""
    title = title or _first_words("\n".join(decisions_in(prompt)) or prompt) or "Answer"
    answer = (
        '<section class="answer" aria-labelledby="answer">\n<h2 id="answer">Answer</h2>\n'
        f"{_documents(response, do)}</section>\n"
    )
    return _page(title, _listed(_facts(response)), _prompt_section(prompt, "prompt") + answer)


def _page(title: str, facts: str, body: str, more_head: str = "") -> str:
    """`title` is text, the rest HTML."""
    style = f"\n{page_style()}"
    return _PAGE.format(
        policy=f"default-src 'none'; style-src 'sha256-{_hash(style)}'; base-uri 'none'; form-action 'none'",
        more_head=more_head,
        title=prose_line(title),
        style=style,
        facts=facts,
        body=body,
    )


def _prompt_section(prompt: str, id: str) -> str:
    if note := "\n".join(decisions_in(prompt)):
        return f'<p class="note">{prose(note)}</p>\n'
    if not prompt:
        return ""
    return f'<section class="prompt" aria-labelledby="{id}"><h2 id="{id}">Prompt</h2>{plain(prompt)}</section>\n'


def _documents(response: ChatResponse, do: Do) -> str:
    return "".join(articles(response.documents, do, answerable=False)) or "<p>The answer is empty.</p>\n"


def _listed(facts: Sequence[tuple[str, str]]) -> str:
    return "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts if fact)


_NO_ROBOTS = '<meta name="robots" content="noindex, nofollow">\n'


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
{more_head}<title>{title}</title>
<style>{style}</style>
</head>
<body class="export">
<main>
<header class="page">
<h1>{title}</h1>
<dl class="facts">{facts}</dl>
</header>
{body}</main>
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
