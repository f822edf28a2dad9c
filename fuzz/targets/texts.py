"""Text of anybody's: Markdown, documents to be shown, an answer to be cut, and what a program prints."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import msgspec

from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.dialects.documents.request import read_chat_request
from cursor_gateway.errors import Failure, InvalidRequest
from cursor_gateway.markdown.fences import FenceSplitter
from cursor_gateway.model.agent_events import RunFinished, TextDelta
from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, DocumentStarted
from cursor_gateway.model.documents import (
    ChatResponse,
    CodeBlockMetadata,
    Diff,
    FileEditMetadata,
    Metadata,
    TextMetadata,
    ThinkingMetadata,
    document_type,
    make_document,
)
from cursor_gateway.model.requests import Fences, RunInfo
from cursor_gateway.render.html.work import render_answer, render_page
from cursor_gateway.render.visible import visible, visible_line, visible_output
from cursor_gateway.sources.cursor.failures import TrailerWatch, failure_of, reported_failure
from cursor_gateway.sources.cursor.models import is_known, nearest, parse_models
from cursor_gateway.sources.sdk.failures import run_failure
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.stages.search_tokens import Words
from cursor_gateway.stages.summary import one_line
from cursor_gateway.store.texts import query_words, searchable, snippet
from fuzz.target import Target, cuttings, dice, text_of
from tests.laws.laws import assemble, assert_says_exactly, assert_well_formed
from tests.laws.laws import joined as joined_events
from tests.markdown.test_fences import joined, ours, raw, theirs
from tests.render.test_html_live import assert_live_is_final
from tests.render.test_html_safety import _PAGE_ATTRIBUTES, _PAGE_TAGS
from tests.render.test_html_safety import text_of as text_of_html
from tests.render.views import written
from tests.scenarios.golden import scenarios
from tests.stages.test_cutting import plain_cut
from tests.strategies import chunks, outputs, steps
from tests.strategies import work as calls

_RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
_COMMON = re.compile(r"[\t\n\x20-\x7e]*")  # what two readers of Markdown must agree about
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


# --- Markdown ---------------------------------------------------------------------------------------


def markdown(data: bytes) -> None:
    text, roll = text_of(data), dice(data)
    for fences in ("split", "inline"):
        _assert_split_the_same(text, fences, list(cuttings(text, roll)))
    if _COMMON.fullmatch(text):
        whole = text + "\n"
        assert ours(joined(outputs(FenceSplitter(), [whole]))) == theirs(whole), "markdown-it finds other fences"


def _assert_split_the_same(text: str, fences: Fences, ways: list[list[str]]) -> None:
    pieces = joined(outputs(FenceSplitter(fences), [text]))
    assert "".join(map(raw, pieces)) == text
    run = msgspec.structs.replace(_RUN, fences=fences)
    events = assemble([TextDelta(text), RunFinished()], run)
    assert_well_formed(events)
    assert_says_exactly(text, events)
    for way in ways:
        assert joined(outputs(FenceSplitter(fences), way)) == pieces
        assert joined_events(assemble([*map(TextDelta, way), RunFinished()], run)) == joined_events(events)


_MARKDOWN = [
    "Text.\n\n```python\nx = 1\n```\nMore.\n",
    "- item\n\n  ```js\n  a\n  ```\n> ```py\n> quoted\n",
    "~~~~ 1:3:src/a b.py\n~~~\n~~~~\r\n\r\n<div>\n```py\n</div>\n\n1) a\n   - b\n\t```c\n\tx\n",
    "# a\n===\n***\n<!-- \n```\n-->\n``` a`b\n```\n<script>\n```py\n</script>\n\n    ```py\n",
]


def _markdown_seeds() -> Iterator[bytes]:
    yield from (text.encode() for text in _MARKDOWN)
    yield b"```py\r\na\r\n\r\nb\r```\r~~~js\r\r\nc"
    yield "é \u2028```é\n\U0001f600\r```\r\n \u00a0".encode()


# --- documents as they are shown --------------------------------------------------------------------


def html(data: bytes) -> None:
    """The first line names a language, the rest is the content."""
    text, roll = text_of(data), dice(data)
    language, _, content = text.partition("\n")
    kinds: list[Metadata] = [
        TextMetadata(),
        ThinkingMetadata(),
        CodeBlockMetadata(language=language[:40], purpose="example"),
    ]
    for metadata in kinds:
        document = make_document("doc_001", 1, content, metadata)
        text_of_html(render_answer([document]))
        for way in cuttings(content, roll):
            events: list[DocumentEvent] = [
                DocumentStarted("doc_001", document_type(metadata), 1),
                *(ContentDelta("doc_001", piece) for piece in way),
                DocumentEnded(document),
            ]
            assert_live_is_final(events)
    for shown in (visible(text), visible_output(text)):
        assert not _CONTROL.search(shown.replace("\n", "").replace("\t", ""))
    assert not _CONTROL.search(visible_line(text))


def _html_seeds() -> Iterator[bytes]:
    yield from (f"python\n{text}".encode() for text in _MARKDOWN)
    yield b"js\n[a](javascript:x) ![b](https://a.example 'c\" onclick=x') <b onclick=x> <https://a.example> &lt; **b*\n"
    yield b"html\n| a | b |\n|:-|-:|\n| <i> | `c` |\n\n1. x\n\n   y\n\n[a]: //b\n[a]\n"
    yield b"\x1b[31m\n\x1b]8;;x\x07a\x1b\\\x00\r\x1b[2Jb\xe2\x80\xae\n"


def documents(data: bytes) -> None:
    """An answer as a client may get it from another gateway."""
    try:
        response = msgspec.json.decode(data, type=ChatResponse)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    assert msgspec.json.decode(encode_response(response), type=ChatResponse) == response
    text_of_html(render_answer(response.documents))
    page = render_page(response, prompt=response.model)
    text_of_html(page.partition("\n")[2], _PAGE_TAGS, _PAGE_ATTRIBUTES)
    events: list[DocumentEvent] = []
    for document in response.documents:
        events += [DocumentStarted(document.id, document_type(document.metadata), 1), DocumentEnded(document)]
        line = one_line(document)
        assert line is None or "\n" not in line
    shown = written(events, plain=True)
    assert not _CONTROL.search(shown.replace("\n", "").replace("\t", "")), "it moves the reader's cursor"
    words = Words()
    for document in response.documents:
        words.push(document)
    searchable(words.all).encode()


def _document_seeds() -> Iterator[bytes]:
    for scenario in scenarios():
        yield msgspec.json.encode(msgspec.json.decode((scenario.folder / "documents.json").read_bytes()))


# --- an answer that is cut --------------------------------------------------------------------------


class _Cutting(msgspec.Struct):
    text: str
    stop: list[str] = []
    max_tokens: int | None = None


def cutting(data: bytes) -> None:
    try:
        asked = msgspec.json.decode(data, type=_Cutting)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    stop = tuple(filter(None, asked.stop))[:4]
    limit = None if asked.max_tokens is None else max(1, asked.max_tokens)
    expected = plain_cut(asked.text, stop, limit)
    for pieces in ([asked.text], *cuttings(asked.text, dice(data))):
        cutter = Cutter(stop, limit)
        assert ("".join(outputs(cutter, pieces)), cutter.reason) == expected


def _cutting_seeds() -> Iterator[bytes]:
    yield b'{"text":"one two three","stop":["two"],"max_tokens":2}'
    yield b'{"text":"xabcx","stop":["bc","abc"]}'
    yield b'{"text":"aabaabaaab \\n\\n x","stop":["aaab","aab a","b"]}'
    yield '{"text":"a  é\\n漢字 \U0001f600 12345 foo_bar","max_tokens":7}'.encode()


# --- what a program prints --------------------------------------------------------------------------


def words(data: bytes) -> None:
    text = text_of(data)
    for failure in (
        failure_of(text).failure(),
        reported_failure(text).failure(),
        *(run_failure(status, text[:30], text) for status in ("error", "cancelled", "expired")),
    ):
        _assert_presentable(failure)
    for pieces in cuttings(text, dice(data)):
        watch = TrailerWatch()
        said = "".join(map(watch.push, pieces))
        assert said == text or (text.startswith(said) and watch.finish() is not None)
    models = parse_models(text)
    for model in models:
        assert is_known(model.id, models)
        assert set(nearest(model.id, models)) <= {known.id for known in models}


def _assert_presentable(failure: Failure) -> None:
    assert not _CONTROL.search(failure.message)
    assert len(failure.message) <= 1100
    assert 400 <= failure.status < 600
    msgspec.json.encode(failure)


def _word_seeds() -> Iterator[bytes]:
    yield b"\x1b[31mError: \x1b[0mAuthentication required. Run 'agent login'\n"
    yield b"Cannot use this model: gpt-9. Available models: auto, gpt-5, sonnet-4\n"
    yield b"Some text.\n\nError: RetriableError: [unavailable] PING timed out"
    yield b"A\n\nError: T: [internal] Failed to run step, exceeded max retries\n"
    yield b"Available models\n\nauto - Auto (default)\ngpt-5 - GPT-5 (current, default)\nx\xe2\x80\x8b - y\n\nTip: x"


# --- work --------------------------------------------------------------------------------------------

_SEPARATOR = "\x1f"
_FEW, _MANY = 60, 240


def work(data: bytes) -> None:
    """How a text begins, what is repeated in it, and how it ends: four times the text is about four times the work in
    everything that runs on the event loop, or when rendering took too long. Work is counted, not timed."""
    start, unit, end, *_ = [*text_of(data).split(_SEPARATOR), "", ""]
    start, unit, end = start[:400], unit[:40], end[:100]
    if not unit:
        return
    small, large = (start + unit * count + end for count in (_FEW, _MANY))
    for stage in (_split_all, _assembled, _shown_plainly, _sent, _found):
        few, many = (steps(partial(stage, text)) + calls(partial(stage, text)) for text in (small, large))
        assert many <= 6 * few + 2000, f"{stage.__name__}: {few} steps, and {many} for four times the text"


def _split_all(text: str) -> None:
    outputs(FenceSplitter(), [text])


def _assembled(text: str) -> None:
    assemble([*map(TextDelta, chunks(text, 50)), RunFinished()], _RUN)


def _shown_plainly(text: str) -> None:
    diff = Diff(old_string=text, new_string=text[::-1], start_line=1, end_line=1)
    kinds: list[Metadata] = [
        TextMetadata(),
        CodeBlockMetadata(language="python", purpose="example"),
        FileEditMetadata(file_path="a.go", operation="edit", language="go", diff=diff),
    ]
    render_answer((make_document("doc_001", 1, text, metadata) for metadata in kinds), lambda job: None)


def _sent(text: str) -> None:
    with suppress(InvalidRequest):
        read_chat_request(text.encode())
    with suppress(InvalidRequest):
        read_chat_request(msgspec.json.encode({"message": text}))


def _found(text: str) -> None:
    with suppress(InvalidRequest):
        snippet(text, query_words(text[-900:]) or ["a"])


def _work_seeds() -> Iterator[bytes]:
    for start, unit, end in [
        ("- " * 100 + "x\n", " " * 39 + "x\n", ""),
        ("- " * 100 + "x\n", "\n", "x"),
        ("> " + "- " * 90 + "```py\n", ">\n", "```"),
        ("", "- ", "x"),
        ("> a\n", "a\n", ""),
        ("```go\n", "/*\n", "```"),
        ("| a | b |\n|---|---|\n", "| *a* | `b` |\n", ""),
        ("", "[", ""),
        ("", "*a_ ", ""),
        ("<a", " b=c", ""),
        ('{"message":"a","tools":[', "{},", "{}]}"),
        ("[" * 20, '{"a":[', ""),
        ("\x1b]", "\x1b[0;", "m"),
        ("\r\n", "\r", "\n"),
    ]:
        yield _SEPARATOR.join((start, unit, end)).encode()


TARGETS = [
    Target(
        "markdown",
        "For any text in any chunks, the concatenated raws are the text, documents are well-formed, and fences "
        "follow CommonMark.",
        markdown,
        _markdown_seeds,
        "text",
        512,
    ),
    Target(
        "html",
        "Any text stays text in HTML, and streaming it gives the same page.",
        html,
        _html_seeds,
        "text",
        512,
    ),
    Target(
        "documents",
        "Any answer that can be parsed can be displayed: only our own tags in HTML, no control characters in a "
        "terminal.",
        documents,
        _document_seeds,
        "json",
    ),
    Target("cutting", "Where an answer is cut does not depend on its chunks.", cutting, _cutting_seeds, "json", 1024),
    Target(
        "work", "Four times the text is about four times the work, whatever it says.", work, _work_seeds, "text", 1024
    ),
    Target("words", "Any program output gives an error that can be displayed.", words, _word_seeds, "text", 2048),
]
