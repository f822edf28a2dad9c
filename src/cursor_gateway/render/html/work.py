"""Render documents, with jobs for what may take more than linear time.

Pygments and Markdown parsers take quadratic time for some texts. So what they do is asked for as a job: `perform` does
it here and now, a server has it done in another process that is killed when it takes too long (then there is no
result, and the document is shown as plain text). Everything else in this package is linear.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple, TypeAlias

from msgspec import UNSET, Struct

from cursor_gateway.model.documents import (
    ChatResponse,
    CodeBlockDocument,
    CodeReferenceDocument,
    Document,
    PlanDocument,
    TodoStatus,
    TodoUpdateDocument,
)
from cursor_gateway.prompting.replies import decisions_in
from cursor_gateway.render.html import markdown
from cursor_gateway.render.html.documents import article, code_part
from cursor_gateway.render.html.markdown import Rendered as Rendered
from cursor_gateway.render.html.pieces import count, exact_line, plain, prose, prose_line, span, unseen
from cursor_gateway.render.looks import Todo, Todos, changed, duration, planned, progress, tokens, updated, waits_for


class Article(Struct, frozen=True, tag="article"):
    """A whole document. `todos` is HTML."""

    document: Document
    todos: str = ""
    answerable: bool = True


class CodePart(Struct, frozen=True, tag="code"):
    """The highlighted code of a document."""

    document: CodeBlockDocument | CodeReferenceDocument


class Lines(Struct, frozen=True, tag="lines"):
    """Texts of one line, such as to-dos."""

    texts: list[str]


class Blocks(Struct, frozen=True, tag="blocks"):
    """A Markdown text."""

    text: str


class OpenText(Struct, frozen=True, tag="open"):
    """A Markdown text that may continue: the HTML of its finished blocks, and of the rest."""

    text: str


Job: TypeAlias = Article | CodePart | Lines | Blocks | OpenText


Do: TypeAlias = Callable[[Job], Rendered | None]
"""None: it took too long."""


def perform(job: Job) -> Rendered:
    match job:
        case Article(document=document, todos=todos, answerable=answerable):
            return Rendered([article(document, todos, answerable=answerable)])
        case CodePart(document=code):
            return Rendered([code_part(code)])
        case Lines(texts=texts):
            return Rendered([markdown.render_line(text) for text in texts])
        case Blocks(text=text):
            return markdown.render_blocks(text)
        case OpenText(text=text):
            return markdown.render_open(text)


def render_article(document: Document, todos: str, do: Do, *, answerable: bool = True) -> str:
    """As plain text if it would take too long."""
    done = do(Article(document, todos, answerable))
    if done is not None:
        return done.html[0]
    return article(document, todos, answerable=answerable, as_plain=True)


# --- a plan's to-dos, in their current state ---------------------------------------------------------


TodoDocument: TypeAlias = PlanDocument | TodoUpdateDocument

_TODO_MARKS: dict[TodoStatus, str] = {"pending": "☐", "in_progress": "◐", "completed": "☑", "cancelled": "☒"}


class TodoLists:
    """The newest plan's list, and what each change says. Documents are pushed in their order."""

    def __init__(self, do: Do) -> None:
        self._do = do
        self._html: dict[str, str] = {}  # of contents
        self._plan: str | None = None
        self._todos: Todos = {}

    def push(self, document: TodoDocument, /) -> str:
        """The document's own list."""
        self._render(todo.content if isinstance(todo.content, str) else todo.id for todo in document.metadata.todos)
        if isinstance(document, PlanDocument):
            self._plan = document.id
            self._todos = planned(document.metadata)
            return self._list(self._todos)
        before = self._todos
        if document.metadata.state in (UNSET, "completed"):  # a change that failed changed nothing
            self._todos = updated(before, document.metadata)
        return self._list(changed(before, document.metadata))

    def push_all(self, documents: Iterable[Document]) -> dict[str, str]:
        """By the document's id: a plan's list at its end, a change's as it was."""
        found: dict[str, str] = {}
        for document in documents:
            if isinstance(document, PlanDocument):
                found |= self.plan()
            if isinstance(document, TodoDocument):
                found[document.id] = self.push(document)
        return found | self.plan()

    def plan(self) -> dict[str, str]:
        """The newest plan's list now, by the plan's id."""
        return {} if self._plan is None else {self._plan: self._list(self._todos)}

    def _render(self, contents: Iterable[str]) -> None:
        """All at once, each only the first time; as plain text if it takes too long."""
        new = [content for content in dict.fromkeys(contents) if content not in self._html]
        done = self._do(Lines(new)) if new else None
        self._html |= zip(new, done.html if done is not None else map(prose_line, new), strict=True)

    def _list(self, shown: Todos) -> str:
        numbers = {id: number for number, id in enumerate(self._todos, 1)}
        items = "".join(
            _todo_item(todo, self._html[todo.content], numbers.get(id), waits_for(todo, self._todos))
            for id, todo in shown.items()
        )
        done = f'<p class="progress">{progress(self._todos)}</p>' if self._todos else ""
        listed = f"<ol>{items}</ol>" if items else ""
        return f'<div class="todos" data-part="todos">{done}{listed}</div>'


def _todo_item(todo: Todo, html: str, number: int | None, needed: str) -> str:
    """The number is the one in the plan, also where only some are listed."""
    value = f' value="{number}"' if number else ""
    mark = f'<span class="mark" aria-hidden="true">{_TODO_MARKS[todo.status]}</span>'
    status = unseen(f"{todo.status.replace('_', ' ')}: ")
    after = span(f"after {needed}", "after") if needed else ""
    return f'<li{value} data-status="{todo.status}">{mark}{status}<span>{html}</span>{after}</li>'


def todo_lists(documents: Iterable[Document], do: Do) -> dict[str, str]:
    return TodoLists(do).push_all(documents)


# --- answers -----------------------------------------------------------------------------------------


def render_document(document: Document, do: Do = perform) -> str:
    """A single document: later changes to a plan are not in it."""
    return render_article(document, todo_lists([document], do).get(document.id, ""), do)


def render_answer(documents: Iterable[Document], do: Do = perform) -> str:
    """All documents, the plan ticked off as far as the answer came."""
    return "".join(articles(list(documents), do))


def articles(documents: list[Document], do: Do, *, answerable: bool = True) -> Iterator[str]:
    lists = todo_lists(documents, do)
    for document in documents:
        yield render_article(document, lists.get(document.id, ""), do, answerable=answerable)


# --- whole pages, with their style and without scripts ------------------------------------------------


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
