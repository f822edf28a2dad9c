"""Whatever stands in a document, the HTML of it has only the tags, attributes and addresses that we write."""

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, DocumentStarted
from cursor_gateway.model.documents import (
    ChatResponse,
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Diff,
    Document,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PlanMetadata,
    PlanTodo,
    ResponseMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoChange,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    Usage,
    document_type,
    make_document,
)
from cursor_gateway.render.html.live import LiveRenderer
from cursor_gateway.render.html.work import render_answer, render_document, render_page
from tests.strategies import assert_linear, chunks, examples

_TAGS = {
    "article", "header", "h3", "h4", "h5", "h6", "p", "div", "span", "pre", "code", "ul", "ol", "li", "blockquote",
    "em", "strong", "s", "sup", "a", "br", "hr", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption",
    "button", "details", "summary", "ins", "del", "form", "fieldset", "legend", "label", "input",
    "math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "mstyle", "msub", "msup", "msubsup",
    "munder", "mover", "munderover", "mtable", "mtr", "mtd", "mpadded", "mphantom", "menclose", "ms",
}  # fmt: skip
_PAGE_TAGS = _TAGS | {
    "html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "dl", "dt", "dd", "time",
}  # fmt: skip
_ATTRIBUTES = {
    "class", "id", "tabindex", "aria-label", "aria-hidden", "aria-labelledby", "data-part", "data-type",
    "data-sequence", "data-path", "data-operation", "data-added", "data-removed", "data-exit", "data-of",
    "data-permission", "data-accepted", "data-depth", "data-image", "placeholder", "role",
    "data-state", "data-status", "data-copy", "data-draws", "data-answer", "data-question", "type", "name", "value",
    "checked",
    "display", "stretchy", "fence", "form", "displaystyle", "columnalign", "rowspacing", "columnspacing",
    "movablelimits", "linethickness", "minsize", "maxsize", "width", "mathvariant", "scriptlevel", "accent",
    "lspace", "rspace",
    "disabled", "dir", "autocomplete", "href", "rel", "target", "title", "start",
}  # fmt: skip
_PAGE_ATTRIBUTES = _ATTRIBUTES | {"lang", "charset", "http-equiv", "content", "datetime"}
_VOID = {"br", "hr", "input", "meta"}
_DEEPEST = 60  # browsers flatten what is nested beyond 512


class Checked(HTMLParser):
    """Fails on what nobody here writes, and on tags that are not closed in their order."""

    def __init__(self, tags: set[str], attributes: set[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._tags, self._attributes = tags, attributes
        self._open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self._tags, tag
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), attrs
        for name, value in attrs:
            assert name in self._attributes, (tag, name)
            if name == "href":
                assert re.match(r"https?://[^/]|mailto:", value or "", re.IGNORECASE), value
            if name in ("class", "data-part", "type"):
                assert re.fullmatch(r"[a-z_ ]+", value or ""), value
        if tag not in _VOID:
            self._open.append(tag)
            assert len(self._open) < _DEEPEST

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def close(self) -> None:
        super().close()
        assert self._open == []


def text_of(html: str, tags: set[str] = _TAGS, attributes: set[str] = _ATTRIBUTES) -> str:
    """What is read of it; fails if it is not harmless."""
    html.encode()  # half a character could not be sent
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
    parser = Checked(tags, attributes)
    parser.feed(html)
    parser.close()
    return "".join(parser.text)


# --- every field of every type ----------------------------------------------------------------------

_NASTY = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "</code></pre><script>",
    "</article>", "<!-- ", "-->", "<?x", "]]>", "&lt;b&gt;", "&#x202e;", "&#0;", "&", "\u202e", "\u2066", "\u200b",
    "\x00",
    "\x1b[31m", "\x1b]8;;javascript:x\x07", "\ud83d", "\udc00", "\r", "\n", "\n\n", "\t", "`", "```\n", "```<b>\n",
    "**",
    "[a](javascript:alert(1))", "[a](data:text/html,x)", "[a](JaVaScRiPt&colon;x)", "[a](//evil.example)", "[a](x.md)",
    "[a](http:x)", "[a](https://a.example 'b\" onclick=x')", "![a](https://a.example/x.png)", "![<b>](javascript:x)",
    "<javascript:alert(1)>", "<https://a.example>", "[![i](http://i.example)](http://a.example)", "[a]: javascript:x\n",
    "[a]", "a | b\n:-|-:\n1 | <b>\n", "# ", "> ", "- ", "1. ", "999. ", "---\n", "~~", "{style}", "{", "}", "%s",
]  # fmt: skip
nasty = st.lists(st.sampled_from(_NASTY) | st.text(max_size=3), max_size=6).map("".join)
nasty_lists = st.lists(nasty, max_size=3)
any_json: st.SearchStrategy[Any] = st.recursive(
    nasty | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(nasty, inner, max_size=3),
    max_leaves=6,
)
numbers = st.integers(-5, 200)
trace: dict[str, Any] = {
    "state": st.sampled_from(
        [UNSET, "completed", "failed", "rejected", "timed_out", "interrupted", "running", "waiting", 'new" onclick="x']
    ),
    "reason": st.just(UNSET) | nasty,
}
statuses = st.sampled_from(["pending", "in_progress", "completed", "cancelled"])
diffs = st.builds(Diff, old_string=nasty, new_string=nasty, start_line=numbers, end_line=numbers)
options = st.lists(st.builds(ClarificationOption, id=nasty, label=nasty), max_size=3)
questions = st.lists(
    st.builds(
        ClarificationQuestion,
        id=nasty,
        text=nasty,
        options=options,
        allow_multiple=st.sampled_from([UNSET, True, False]),
    ),
    max_size=3,
)
answers = st.lists(
    st.builds(ClarificationAnswer, question_id=nasty, selected_option_ids=nasty_lists, text=st.just(UNSET) | nasty),
    max_size=3,
)
todos = st.lists(st.builds(PlanTodo, id=nasty, content=nasty, status=statuses, dependencies=nasty_lists), max_size=3)
changes = st.lists(st.builds(TodoChange, id=nasty, status=statuses, content=st.just(UNSET) | nasty), max_size=3)
formats = st.sampled_from(["markdown", "plain"])
languages = nasty | st.sampled_from(["python", "html", "diff", "js", "bash", "text", ""])
metadata: st.SearchStrategy[Metadata] = st.one_of(
    st.builds(TextMetadata, format=formats),
    st.builds(ThinkingMetadata, format=formats),
    st.builds(CodeReferenceMetadata, file_path=nasty, start_line=numbers, end_line=numbers, language=languages),
    st.builds(CodeBlockMetadata, language=languages, purpose=st.just("example")),
    st.builds(
        FileEditMetadata,
        file_path=nasty,
        operation=st.sampled_from(["create", "edit", "delete", "rename"]),
        language=languages,
        diff=st.just(UNSET) | diffs,
        old_path=st.just(UNSET) | nasty,
        **trace,
    ),
    st.builds(
        ToolCallMetadata,
        tool_name=nasty,
        tool_call_id=nasty,
        arguments=st.dictionaries(nasty, any_json, max_size=3),
        result=st.builds(ToolCallResult, status=st.sampled_from(["success", "error"]), data=any_json),
        duration_ms=st.integers(-1, 10**7),
        **trace,
    ),
    st.builds(
        TerminalCommandMetadata,
        command=nasty,
        working_directory=st.just(UNSET) | nasty,
        exit_code=st.integers(-1, 3),
        output=nasty,
        duration_ms=st.integers(-1, 10**7),
        permissions=nasty_lists,
        **trace,
    ),
    st.builds(PlanMetadata, title=nasty, overview=nasty, todos=todos, **trace),
    st.builds(ClarificationMetadata, questions=questions, answers=st.just(UNSET) | answers, **trace),
    st.builds(ErrorMetadata, error_code=nasty | st.just("AGENT_OVERLOADED"), source=nasty, details=nasty),
    st.builds(TodoUpdateMetadata, todos=changes, merge=st.sampled_from([UNSET, True, False]), **trace),
)
documents: st.SearchStrategy[Document] = st.builds(make_document, nasty, st.integers(1, 99), nasty, metadata)


@given(documents)
@examples(1500)
def test_no_field_of_any_document_becomes_anything_but_text(document: Document) -> None:
    text_of(render_document(document))
    text_of(render_document(document, lambda job: None))  # as plain text


@given(st.lists(documents, max_size=4), nasty, nasty)
@examples(200)
def test_nor_does_it_in_an_answer_or_a_page(found: list[Document], prompt: str, title: str) -> None:
    text_of(render_answer(found))
    response = ChatResponse(
        id=title,
        conversation_id=title,
        model=prompt,
        mode="agent",
        created=title,
        status="completed",
        documents=found,
        usage=Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3),
        metadata=ResponseMetadata(duration_ms=1, tool_call_count=1, turn_count=1),
    )
    text_of(render_page(response, prompt=prompt, title=title).partition("\n")[2], _PAGE_TAGS, _PAGE_ATTRIBUTES)


@given(documents)
@examples(300)
def test_nor_while_it_grows(document: Document) -> None:
    renderer = LiveRenderer()
    content = document.content or ""
    events: list[DocumentEvent] = [
        DocumentStarted(document.id, document_type(document.metadata), 1),
        *(ContentDelta(document.id, piece) for piece in chunks(content, 5)),
        DocumentEnded(document),
    ]
    for event in events:
        for fragment in renderer.push(event):
            text_of(fragment.html)


# --- single traps -----------------------------------------------------------------------------------


def prose(text: str) -> str:
    html = render_document(make_document("doc_001", 1, text, TextMetadata()))
    text_of(html)
    return html


def python(text: str, language: str = "python") -> str:
    html = render_document(make_document("doc_001", 1, text, CodeBlockMetadata(language=language, purpose="example")))
    text_of(html)
    return html


@pytest.mark.parametrize(
    "address",
    [
        *("javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "file:///etc/passwd", "vbscript:x", "//a.example"),
        *("src/main.py", "#top", "?q", "/v1/chat", "http:x", "http:/x", "https:///x", "ftp://a.example", "tel:1"),
        *("javascript:alert(1)//http://a.example", "data:text/html,mailto:a@b.example"),
    ],
)
def test_an_address_that_is_not_followed_is_shown(address: str) -> None:
    html = prose(f"[name]({address})")
    assert "href" not in html
    assert f"name (<code>{address}</code>)" in html
    assert "href" not in prose(f"![name]({address})")
    assert "href" not in prose(f"[name]\n\n[name]: {address}")


@pytest.mark.parametrize("address", ["http://a.example", "HTTPS://a.example/b?c#d", "mailto:a@b.example"])
def test_an_address_that_is_followed_tells_nobody_where_from(address: str) -> None:
    assert f'<a href="{address}" rel="noopener noreferrer nofollow" target="_blank">name</a>' in prose(
        f"[name]({address})"
    )
    assert address in prose(f"<{address}>")


def test_what_cannot_be_seen_is_shown_in_a_links_title() -> None:
    """An entity can be any character, also one that was made visible in the text around it."""
    html = prose("[name](https://a.example 'a&#x202e;b') ![](https://a.example 'a&#x202e;b')")
    assert html.count('title="a\ufffdb') == 2


def test_an_image_is_a_link_to_it_and_is_not_loaded() -> None:
    html = prose("![a *cat*](https://a.example/c.png)")
    assert ">a cat</a>" in html
    assert "<img" not in html
    assert prose("[![a](https://i.example)](https://a.example)").count("<a ") == 1
    assert ">image</a>" in prose("![](https://a.example/c.png)")


def test_a_column_is_aligned_by_a_class_not_by_a_style() -> None:
    """The page's policy allows no inline styles."""
    found = prose("| a |\n|--:|\n| b |\n")
    assert '<td class="right" dir="auto">b</td>' in found
    assert "style" not in found


def test_what_looks_like_html_is_read_as_it_was_written() -> None:
    html = prose("A `List<String>`, a <b>bold</b> word and <std::string>.\n\n<div onclick='x'>\n")
    assert "A List<String>, a <b>bold</b> word and <std::string>." in text_of(html)
    assert "<div onclick='x'>" in text_of(html)


def test_code_and_the_name_of_its_language_are_escaped() -> None:
    for html in (python('x = "<b>&"  # <i>'), prose('```python\nx = "<b>&"  # <i>\n```'), prose("```<b>&<i>\nx\n```")):
        assert "&lt;b&gt;&amp;" in html
        assert "&lt;i&gt;" in html
        assert "<b>" not in html
        assert "<i>" not in html


def test_what_cannot_be_seen_is_shown_in_code_paths_and_commands() -> None:
    sly = "a\u202eb\u200bc\u2066d\u00ade\ufefff\u2028g\x00h"
    shown = "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffdg\u2400h"
    assert shown in text_of(python(sly))
    assert shown in text_of(python(sly, "text"))
    assert shown in text_of(prose(f"`{sly}`")).replace("\n", "\u2028")
    edit = FileEditMetadata(
        file_path=sly,
        operation="edit",
        language="python",
        diff=Diff(old_string=sly, new_string="", start_line=1, end_line=1),
    )
    assert text_of(render_document(make_document("doc_001", 1, "", edit))).count(shown) == 2
    command = TerminalCommandMetadata(
        command=sly, working_directory=sly, exit_code=0, output=sly, duration_ms=0, permissions=[]
    )
    assert text_of(render_document(make_document("doc_001", 1, None, command))).count(shown) == 3


def test_emoji_stay_whole() -> None:
    assert "👩‍💻" in python("x = '👩‍💻'")


@pytest.mark.parametrize("open", [">", "- ", "1. ", "> - ", "*", "_", "[", "![", "~~", "`", "<", "&"])
def test_deep_nesting_is_bounded(open: str) -> None:
    html = prose(open * 5000 + "deep" + "](http://a.example)" * 20 + "*" * 5000)
    assert "deep" in text_of(html)


@pytest.mark.parametrize("data", [[[]], {"a": {}}])
def test_a_result_nested_absurdly_says_so(data: Any) -> None:
    for _ in range(100_000):
        data = [data]
    call = ToolCallMetadata(
        tool_name="t", tool_call_id="c", arguments={}, result=ToolCallResult(status="success", data=data), duration_ms=0
    )
    assert "nested too deeply" in render_document(make_document("doc_001", 1, None, call))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "piece", ["a ", "*a ", "[", "![a](", "`", "> a\n", "- a\n", "a|b\n", "<", "&#1;", "\n\n", "[a]: b\n"]
)
def test_prose_takes_time_by_its_length(piece: str) -> None:
    assert_linear(lambda size: prose(piece * (size // len(piece))))


def test_ten_thousand_documents_are_one_page() -> None:
    found = [make_document(f"doc_{number:05d}", number, "Hi", TextMetadata()) for number in range(1, 10_001)]
    assert render_answer(found).count("<article") == 10_000


def test_documents_of_another_make_are_read_from_json() -> None:
    """The types promise less than JSON may hold: a state that nobody knows yet."""
    call = msgspec.convert(
        {
            "toolName": "t",
            "toolCallId": "c",
            "arguments": {},
            "result": {"status": "success", "data": 1},
            "duration_ms": 3,
        },
        ToolCallMetadata,
    )
    strange = msgspec.structs.replace(call, state="dreaming_of it")
    html = render_document(make_document("doc_001", 1, None, strange))
    assert "dreaming of it" in text_of(html)
    assert 'data-state="dreaming_of it"' in html
