"""Fragments, applied one after another, are the page; and what grows costs time by its length."""

import re
from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cursor_gateway.demo import recordings
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    KnownMetadata,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.model.documents import (
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Document,
    DocumentType,
    ErrorMetadata,
    Metadata,
    PlanMetadata,
    PlanTodo,
    TextMetadata,
    ThinkingMetadata,
    TodoChange,
    TodoStatus,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    document_type,
    make_document,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.render.html import markdown
from cursor_gateway.render.html.live import Added, Appended, Fragment, LiveRenderer, Replaced
from cursor_gateway.render.html.work import Do, perform, render_answer, render_document
from cursor_gateway.render.visible import visible
from tests.laws.laws import assemble, response_of
from tests.laws.strategies import agent_events
from tests.render.views import RUN, events_of
from tests.scenarios.golden import Scenario, scenarios
from tests.strategies import chunks, cut, examples, places

EVERYTHING = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z", include=frozenset({"thinking", "raw"}))


# --- the law ----------------------------------------------------------------------------------------


class Page:
    """What the page's script does, to text: articles by their ids, and parts of them found by `data-part`."""

    def __init__(self) -> None:
        self.articles: dict[str, str] = {}

    def apply(self, fragment: Fragment) -> None:
        match fragment:
            case Added(id=id, html=html):
                assert id not in self.articles
                self.articles[id] = html
            case Appended(id=id, part=part, html=html):
                article = self.articles[id]
                _, end = _part(article, part)
                inner_end = article.rindex("</", 0, end)
                self.articles[id] = article[:inner_end] + html + article[inner_end:]
            case Replaced(id=id, part="", html=html):
                assert id in self.articles
                self.articles[id] = html
            case Replaced(id=id, part=part, html=html):
                start, end = _part(self.articles[id], part)
                self.articles[id] = self.articles[id][:start] + html + self.articles[id][end:]

    @property
    def html(self) -> str:
        return "".join(self.articles.values())


def _part(article: str, part: str) -> tuple[int, int]:
    """The first such element, as `querySelector` finds it."""
    opened = re.search(rf'<([a-z]+)[^<>]* data-part="{part}"[^<>]*>', article)
    assert opened, f"no part {part!r} in {article!r}"
    depth = 0
    for tag in re.finditer(rf"<(/?){opened[1]}\b", article[opened.start() :]):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return opened.start(), opened.start() + article[opened.start() :].index(">", tag.end()) + 1
    raise AssertionError(f"{part!r} does not end")


def shown(events: Iterable[DocumentEvent], do: Do = perform) -> Page:
    renderer, page = LiveRenderer(do), Page()
    for event in events:
        for fragment in renderer.push(event):
            page.apply(fragment)
    return page


def assert_live_is_final(events: list[DocumentEvent], do: Do = perform) -> None:
    order = [event.id for event in events if isinstance(event, DocumentStarted)]
    ended = {event.document.id: event.document for event in events if isinstance(event, DocumentEnded)}
    assert shown(events, do).html == render_answer((ended[id] for id in order), do)


def written(
    content: str, pieces: list[str], metadata: Metadata, known: KnownMetadata | None = None
) -> list[DocumentEvent]:
    document = make_document("doc_001", 1, content, metadata)
    return [
        DocumentStarted(document.id, document_type(metadata), 1, known),
        *(ContentDelta(document.id, piece) for piece in pieces),
        DocumentEnded(document),
    ]


def assert_any_pieces_give_the_same(text: str, places: list[int]) -> None:
    for pieces in (chunks(text, 1), cut(text, places), [text]):
        assert_live_is_final(written(text, pieces, TextMetadata()))
        assert_live_is_final(written(text, pieces, ThinkingMetadata()))
        for language in ("python", "text"):
            known = KnownMetadata(file_path="a.py", start_line=98, end_line=104, language=language)
            reference = CodeReferenceMetadata(file_path="a.py", start_line=98, end_line=104, language=language)
            assert_live_is_final(written(text, pieces, reference, known))


_MARKDOWN = [
    *["\n"] * 6, "\n\n", "```", "~~~", "```py\n", "`", "a", "foo", "**", "*", "_", "~~", " ", "    ", "\t", "- ", "1. ",
    "2", "> ", ">", "# ", "---", "===", "|", "a | b\n", "--|--\n", "[a]", "[a]: b", "(c)", "](http://x)", "![", "]",
    '"t', "'", "<b>", "&amp;", "&#x202e;", "\r", "\r\n", "\x1b[3", "1m", "\x1b]0;", "\x07", "\x00", "\u202e", "é",
    "\u2028",
]  # fmt: skip
markdown_texts = st.lists(st.sampled_from(_MARKDOWN), max_size=24).map("".join)


@given(markdown_texts, places)
@example('p\n\n[a]: /u\n"t\nt"\n\n[a]', [])
@example("- a\n\n2", [5])
@example("a\nb | c\n--|--\n1 | 2\n\nx\n", [])
@example("![```py\n|```py\n ------_```py\n\n ]", [])  # a table, until its row goes on
@example("\x1b[31mred\x1b[0m\r\n\x1b", [1, 2, 9])
@examples(400)
def test_prose_and_code_in_any_pieces_end_as_the_whole(text: str, places: list[int]) -> None:
    assert_any_pieces_give_the_same(text, places)


@given(agent_events)
@examples(200)
def test_any_run_ends_as_its_answer(events: list[object]) -> None:
    document_events = assemble(events, EVERYTHING)  # type: ignore[arg-type] # what the strategy says it gives
    assert_live_is_final(document_events)
    assert shown(document_events).html == render_answer(response_of(document_events).documents)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_every_scenario_ends_as_its_answer(scenario: Scenario) -> None:
    assert_live_is_final(events_of(b"".join(scenario.lines), scenario.run))


@pytest.mark.parametrize("name", recordings())
def test_every_demo_ends_as_its_answer(name: str) -> None:
    assert_live_is_final(events_of(recordings()[name], RUN))


# --- what takes too long ----------------------------------------------------------------------------


def too_slow_with(word: str) -> Do:
    """Jobs with this word in them take too long."""
    return lambda job: None if word in repr(job) else perform(job)


def _shows_each(word: str, text: str) -> bool:
    """Escape sequences hide no part of it: what is not shown takes no time."""
    return visible(text).count(word) == text.count(word)


slow_texts = (
    st.lists(st.sampled_from([*_MARKDOWN, "SLOW", "SLOW", "\n\n"]), max_size=24)
    .map("".join)
    .filter(partial(_shows_each, "SLOW"))
)


@given(slow_texts, places)
@examples(200)
def test_what_takes_too_long_looks_the_same_live_and_afterwards(text: str, places: list[int]) -> None:
    do = too_slow_with("SLOW")
    for pieces in (chunks(text, 3), cut(text, places), [text]):
        assert_live_is_final(written(text, pieces, TextMetadata()), do)
        assert_live_is_final(written(text, pieces, ThinkingMetadata()), do)
        known = KnownMetadata(language="python", purpose="example")
        assert_live_is_final(written(text, pieces, CodeBlockMetadata(language="python", purpose="example"), known), do)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_every_scenario_as_plain_text_ends_as_its_answer(scenario: Scenario) -> None:
    assert_live_is_final(events_of(b"".join(scenario.lines), scenario.run), lambda job: None)


def test_an_open_text_that_takes_too_long_goes_on_as_it_is_written() -> None:
    renderer, page = LiveRenderer(too_slow_with("SLOW")), Page()
    pieces = ["# One\n\nTwo *words*\n\n", "> SLOW *text* and ", "more <b>"]
    for event in written("", pieces, TextMetadata())[:-1]:
        for fragment in renderer.push(event):
            page.apply(fragment)
    assert '<h3 dir="auto">One</h3>' in page.html
    assert "&gt; SLOW *text* and " in page.html
    assert '<span data-part="tail">more &lt;b&gt;</span></code></pre>' in page.html


def test_a_document_that_takes_too_long_says_that_it_is_plain_text() -> None:
    (note,) = re.findall(
        '<p class="ending">(.*?)</p>', render_document(make_document("d", 1, "a", TextMetadata()), lambda job: None)
    )
    assert note == "Shown as plain text, because formatting it took too long."


# --- what is seen on the way ------------------------------------------------------------------------


def test_prose_is_there_before_it_ends_and_finished_blocks_are_not_sent_again() -> None:
    renderer, page = LiveRenderer(), Page()
    sent: list[Fragment] = []
    for event in written("", ["# One\n\nTwo *words*\n\nThree", " and"], TextMetadata())[:-1]:
        sent += renderer.push(event)
    for fragment in sent:
        page.apply(fragment)
    assert '<h3 dir="auto">One</h3>' in page.html
    assert "<em>words</em>" in page.html
    assert '<p dir="auto">Three<span data-part="tail"> and</span></p>' in page.html
    assert isinstance(sent[-1], Appended)
    assert "One" not in renderer.push(ContentDelta("doc_001", " more words than an eighth"))[0].html


def test_what_comes_goes_on_with_the_last_line() -> None:
    for text, around in {
        "- a\n- b": '<li>b<span data-part="tail"></span></li>',
        "> a": '<p dir="auto">a<span data-part="tail"></span></p>',
        "a `b`": '<code>b</code><span data-part="tail"></span></p>',
        "```\na": 'a<span data-part="tail"></span></code></pre>',
        "```\na\n": 'a\n<span data-part="tail"></span></code></pre>',
        "```\na\n```\n": '</figure>\n<span data-part="tail"></span>',
        "a\n\n": '<p dir="auto">a</p>\n<span data-part="tail"></span>',
        "a ": '<p dir="auto">a<span data-part="tail"> </span></p>',
        "- a\n- b  ": '<li>b<span data-part="tail">  </span></li>',
        "```\na ": 'a <span data-part="tail"></span></code></pre>',
    }.items():
        assert around in shown(written("", [text], TextMetadata())[:-1]).html


@given(st.lists(st.sampled_from(["the", " ", "quick ", " brown", "fox jumps ", "over **the** ", "lazy"]), max_size=60))
def test_words_never_stick_together_on_the_way(pieces: list[str]) -> None:
    renderer, page = LiveRenderer(), Page()
    said = ""
    for event in written("", pieces, TextMetadata())[:-1]:
        for fragment in renderer.push(event):
            page.apply(fragment)
        if isinstance(event, ContentDelta):
            said += event.text
            assert re.sub("<[^>]*>|[*]", "", page.html).split() == said.replace("*", "").split()


def test_code_is_appended_with_its_numbers_and_coloured_at_its_end() -> None:
    known = KnownMetadata(language="python", purpose="new_code")
    content = "def a():\r\n    pass\n"
    events = written(
        content, ["def a", "():\r", "\n    p", "ass\n"], CodeBlockMetadata(language="python", purpose="new_code"), known
    )
    page = shown(events[:-1])
    assert '<pre data-part="numbers">1\n2</pre>' in page.html
    assert '<code data-part="code">def a():\n    pass\n</code>' in page.html
    fragments = [fragment for event in events[1:] for fragment in _after(events, event)]
    assert [type(fragment) for fragment in fragments[-1:]] == [Replaced]
    assert '<span class="k">def</span>' in fragments[-1].html
    assert [fragment.part for fragment in fragments if isinstance(fragment, Replaced)] == ["fold", "code"]


def _after(events: list[DocumentEvent], wanted: DocumentEvent) -> list[Fragment]:
    renderer = LiveRenderer()
    for event in events:
        fragments = renderer.push(event)
        if event is wanted:
            return fragments
    raise AssertionError("no such event")


def test_a_tool_is_known_better_with_each_event() -> None:
    renderer, page = LiveRenderer(), Page()
    seen = []
    for event in (
        DocumentStarted("doc_001", "tool_call", 1, KnownMetadata(state="waiting", ran_by="caller")),
        ToolCallStarted("doc_001", "weather", "call_1"),
        ToolCallArguments("doc_001", {"city": "Ulm"}),
        ToolCallEnded("doc_001", ToolCallResult(status="success", data="rain")),
    ):
        for fragment in renderer.push(event):
            page.apply(fragment)
        seen.append(page.html)
    assert "waiting" in seen[0]
    assert "run by the caller" in seen[0]
    assert "weather" in seen[1]
    assert "Ulm" in seen[2]
    assert seen[3] == seen[2]


@pytest.mark.parametrize("type", ["plan", "clarification"])
def test_what_is_to_be_decided_on_is_seen_before(type: DocumentType) -> None:
    renderer, page = LiveRenderer(), Page()
    known = KnownMetadata(state="waiting", title="A plan", overview="", todos=[], questions=[])
    for event in (DocumentStarted("doc_001", type, 1, known), ContentDelta("doc_001", "Dump it.", raw="")):
        for fragment in renderer.push(event):
            page.apply(fragment)
    assert "Dump it." in page.html


def test_a_running_command_shows_the_last_lines_that_it_wrote() -> None:
    renderer, page = LiveRenderer(), Page()

    def show(*events: DocumentEvent) -> str:
        for event in events:
            for fragment in renderer.push(event):
                page.apply(fragment)
        return page.html

    started = DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="make <it>"))
    html = show(started, TerminalOutput("doc_001", "<one>\n"), TerminalOutput("doc_001", "50%\r60%"))
    assert "&lt;one&gt;\n60%" in html
    assert 'data-state="running"' in html
    html = show(*(TerminalOutput("doc_001", f"\nline {number}") for number in range(2000)))
    assert "line 1999" in html
    assert "line 99<" not in html
    assert len(html) < 6000
    assert len(show(TerminalOutput("doc_001", "x" * 50_000))) < 6000


def test_what_is_no_document_shows_nothing() -> None:
    assert LiveRenderer().push(TerminalOutput("doc_009", "of nothing")) == []
    assert shown([DocumentStarted("doc_001", "text", 1), TerminalOutput("doc_001", "x")]).html.count("x<") == 0
    assert LiveRenderer().push(Reasoning("hm")) == []
    assert LiveRenderer().push(ContentDelta("doc_009", "of nothing")) == []
    assert LiveRenderer().push(ToolCallStarted("doc_009", "a", "b")) == []


def test_an_end_without_a_start_is_added() -> None:
    document = make_document("doc_001", 1, "Hi", TextMetadata())
    assert LiveRenderer().push(DocumentEnded(document)) == [Added("doc_001", render_document(document))]


@pytest.mark.parametrize(
    "document",
    [
        make_document("doc_001", 1, "*other* text", TextMetadata()),
        make_document("doc_001", 1, "*text*", TextMetadata(format="plain")),
        make_document("doc_001", 1, "*text*", CodeBlockMetadata(language="python", purpose="example")),
    ],
)
@pytest.mark.parametrize("type", ["text", "code_block"])
def test_an_end_that_differs_from_what_was_announced_wins(document: Document, type: DocumentType) -> None:
    start = DocumentStarted("doc_001", type, 1)
    assert shown([start, ContentDelta("doc_001", "*text*"), DocumentEnded(document)]).html == render_document(document)


# --- to-dos -----------------------------------------------------------------------------------------


def plan(id: str, sequence: int, *todos: tuple[str, TodoStatus]) -> Document:
    listed = [PlanTodo(id=todo, content=f"Do {todo}", status=status, dependencies=[]) for todo, status in todos]
    return make_document(id, sequence, "", PlanMetadata(title="It", overview="", todos=listed))


def update(id: str, sequence: int, *todos: tuple[str, TodoStatus], merge: bool = True) -> Document:
    changes = [TodoChange(id=todo, status=status) for todo, status in todos]
    return make_document(id, sequence, None, TodoUpdateMetadata(todos=changes, merge=merge))


def started(document: Document) -> DocumentStarted:
    return DocumentStarted(document.id, document_type(document.metadata), document.sequence)


def test_a_change_ticks_off_the_plan_while_it_is_read() -> None:
    planned, changed = plan("doc_001", 1, ("a", "pending"), ("b", "pending")), update("doc_002", 2, ("a", "completed"))
    renderer = LiveRenderer()
    for event in (started(planned), DocumentEnded(planned), started(changed)):
        renderer.push(event)
    own, ticked = renderer.push(DocumentEnded(changed))
    assert isinstance(own, Replaced)
    assert (own.id, own.part) == ("doc_002", "")
    assert "Do a" in own.html
    assert "Do b" not in own.html
    assert isinstance(ticked, Replaced)
    assert (ticked.id, ticked.part) == ("doc_001", "todos")
    assert "1 of 2 done" in ticked.html
    assert ticked.html in render_answer([planned, changed])


statuses: st.SearchStrategy[TodoStatus] = st.sampled_from(["pending", "in_progress", "completed", "cancelled"])
todos = st.lists(st.tuples(st.sampled_from("abc"), statuses), max_size=3)


@given(st.lists(st.tuples(st.booleans(), todos, st.booleans()), max_size=6), st.randoms())
@examples(200)
def test_tools_that_end_out_of_order_leave_the_same_lists(
    given: list[tuple[bool, list[tuple[str, TodoStatus]], bool]], random: "object"
) -> None:
    documents = [
        plan(f"doc_{number}", number, *listed) if plans else update(f"doc_{number}", number, *listed, merge=merge)
        for number, (plans, listed, merge) in enumerate(given, 1)
    ]
    ends = list(documents)
    random.shuffle(ends)  # type: ignore[attr-defined] # hypothesis has no name for its type
    assert_live_is_final([*map(started, documents), *map(DocumentEnded, ends)])


# --- cost -------------------------------------------------------------------------------------------


def cost(events: Iterable[DocumentEvent], monkeypatch: pytest.MonkeyPatch) -> int:
    """Characters parsed as Markdown and characters sent."""
    total = 0
    blocks = markdown._blocks

    def counted(text: str, env: object) -> Iterable[str]:
        nonlocal total
        total += len(text)
        return blocks(text, env)  # type: ignore[arg-type] # as it was given

    with monkeypatch.context() as patch:
        patch.setattr(markdown, "_blocks", counted)
        renderer = LiveRenderer()
        for event in events:
            total += sum(len(fragment.html) for fragment in renderer.push(event))
    return total


_LONG = {
    "paragraphs": "Some *words* of a text that goes on.\n\n",
    "one paragraph": "words that never end ",
    "one list": "- an item\n",
    "one quote": "> said\n",
    "one fence": "    x = 1\n",
    "one table": "a | b\n",
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("text", _LONG.values(), ids=_LONG)
def test_a_text_costs_by_its_length_whatever_its_blocks(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(size: int) -> int:
        whole = ("a | b\n--|--\n" if "|" in text else "") + text * (size // len(text))
        return cost(written(whole, chunks(whole, 16), TextMetadata()), monkeypatch)

    small, large = of(8_000), of(24_000)
    assert large < 3 * small * 1.3
    assert large < 24_000 * 50


def test_a_delta_costs_by_the_last_block_not_by_what_stands_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = LiveRenderer()
    renderer.push(DocumentStarted("doc_001", "text", 1))
    renderer.push(ContentDelta("doc_001", "A paragraph.\n\n" * 4_000))
    renderer.push(ContentDelta("doc_001", "The next one"))  # what was open is let go of
    (fragment,) = renderer.push(ContentDelta("doc_001", ", which is read now and has more words than before"))
    assert len(fragment.html) < 500


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("line", ["x = 1\n", "x", "\x1b[0m"])
def test_code_of_5_megabytes_is_sent_once(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = line * (5_000_000 // len(line))
    known = KnownMetadata(language="python", purpose="new_code")
    events = written(content, chunks(content, 4096), CodeBlockMetadata(language="python", purpose="new_code"), known)
    assert cost(events, monkeypatch) < 3 * len(content)


def test_prose_of_5_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    content = "word " * 1_000_000
    assert cost(written(content, chunks(content, 65_536), TextMetadata()), monkeypatch) < 25 * len(content)


def test_thousands_of_documents_cost_as_much_as_the_first_each() -> None:
    renderer = LiveRenderer()
    sizes = []
    for number in range(1, 3_001):
        document = _small(number)
        fragments = [*renderer.push(started(document)), *renderer.push(DocumentEnded(document))]
        sizes.append(sum(len(fragment.html) for fragment in fragments))
    assert max(sizes[-4:]) < 1.05 * max(sizes[:4])


def _small(number: int) -> Document:
    id = f"doc_{number:05d}"
    kinds: list[tuple[str | None, Metadata]] = [
        ("Hi", TextMetadata()),
        ("It broke", ErrorMetadata(error_code="X", source="y", details="")),
        (None, TodoUpdateMetadata(todos=[TodoChange(id="a", status="completed")])),
        (
            None,
            ToolCallMetadata(
                tool_name="t",
                tool_call_id="c",
                arguments={},
                result=ToolCallResult(status="success", data=1),
                duration_ms=1,
            ),
        ),
    ]
    content, metadata = kinds[number % 4]
    return make_document(id, number, content, metadata)


def test_nothing_open_is_kept_when_all_has_ended() -> None:
    renderer = LiveRenderer()
    for event in events_of(recordings()["jwt_authentication"], RUN):
        renderer.push(event)
    assert renderer._open == {}
