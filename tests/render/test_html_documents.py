"""What is said of each document in HTML."""

import re
import subprocess
import sys

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Diff,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    Operation,
    PermissionRequest,
    PlanMetadata,
    PlanTodo,
    State,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoChange,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    make_document,
)
from cursor_gateway.render.html.code import change, highlighted
from cursor_gateway.render.html.work import render_answer, render_document
from cursor_gateway.stages.diffs import line_diff
from cursor_gateway.stages.hunks import hunks_between
from tests.render.test_html_safety import text_of


def html(metadata: Metadata, content: str | None = None) -> str:
    html = render_document(make_document("doc_001", 1, content, metadata))
    text_of(html)  # is harmless
    return html


def text(metadata: Metadata, content: str | None = None) -> str:
    return text_of(html(metadata, content))


def edit(operation: Operation, diff: Diff | None = None, **more: str) -> FileEditMetadata:
    return FileEditMetadata(
        file_path="src/a.py",
        operation=operation,
        language="python",
        diff=diff or UNSET,
        old_path=more.get("old_path", UNSET),
    )


def command(exit_code: int = 0, output: str = "", state: State | None = None) -> TerminalCommandMetadata:
    return TerminalCommandMetadata(
        command="make all",
        working_directory="/home/dev",
        exit_code=exit_code,
        output=output,
        duration_ms=1834,
        permissions=["network"],
        state=state or UNSET,
        reason="nobody wants it" if state else UNSET,
    )


def call(data: object = None, state: State | None = None, **arguments: object) -> ToolCallMetadata:
    return ToolCallMetadata(
        tool_name="search",
        tool_call_id="call_1",
        arguments=arguments,
        result=ToolCallResult(status="success", data=data),
        duration_ms=12,
        state=state or UNSET,
        reason="too slow" if state else UNSET,
    )


def plan(*todos: PlanTodo) -> PlanMetadata:
    return PlanMetadata(title="Auth", overview="All of it", todos=list(todos))


def question(*answers: ClarificationAnswer, several: bool = False) -> ClarificationMetadata:
    options = [ClarificationOption(id="j", label="JWT"), ClarificationOption(id="s", label="Sessions")]
    asked = ClarificationQuestion(id="q1", text="Which?", options=options, allow_multiple=several or UNSET)
    return ClarificationMetadata(questions=[asked], answers=list(answers) or UNSET)


_NAMES: list[tuple[Metadata, str]] = [
    (TextMetadata(), "Text"),
    (ThinkingMetadata(), "Thinking"),
    (CodeBlockMetadata(language="python", purpose="example"), "Code, python"),
    (CodeReferenceMetadata(file_path="a.py", start_line=2, end_line=3, language="python"), "a.py, lines 2 to 3"),
    (edit("create"), "Created src/a.py"),
    (command(), "Command make all"),
    (call(), "Tool search"),
    (plan(), "Plan Auth"),
    (question(), "Question"),
    (ErrorMetadata(error_code="GONE", source="read_file", details=""), "Error GONE"),
    (TodoUpdateMetadata(todos=[]), "To-dos"),
]


@pytest.mark.parametrize(("metadata", "name"), _NAMES, ids=lambda given: given if isinstance(given, str) else "")
def test_every_document_is_one_article_with_a_name(metadata: Metadata, name: str) -> None:
    found = html(metadata, "content")
    assert re.match(r'<article class="document ([a-z_]+)" id="doc_001" data-type="\1" data-sequence="1"', found)
    assert f'aria-label="{name}">' in found
    assert found.count("<article") == 1


def test_prose() -> None:
    found = html(TextMetadata(), "# Title\n\n*a* **b** ~~c~~ `d`\n\n3. e\n\n| f | g |\n|---|--:|\n| h | i |\n")
    assert '<h3 dir="auto">Title</h3>' in found
    assert "<em>a</em> <strong>b</strong> <s>c</s> <code>d</code>" in found
    assert '<ol start="3" dir="auto">' in found
    assert '<td class="right" dir="auto">i</td>' in found
    assert "style" not in found


@pytest.mark.parametrize(
    ("text", "address", "after"),
    [
        ("see https://a.example/b?c=d_e#f.", "https://a.example/b?c=d_e#f", "."),
        ("(https://a.example/b_(c))", "https://a.example/b_(c)", ")"),
        ("**http://localhost:8787/**", "http://localhost:8787/", "</strong>"),
        ("HTTPS://A.example", "HTTPS://A.example", ""),
    ],
)
def test_an_address_in_a_sentence_is_a_link(text: str, address: str, after: str) -> None:
    link = f'<a href="{address}" rel="noopener noreferrer nofollow" target="_blank">{address}</a>'
    assert f"{link}{after}" in html(TextMetadata(), text)


@pytest.mark.parametrize(
    "text", ["`https://a.example`", "a/https://a.example", "https://", "ftp://a.example", "javascript://a.example"]
)
def test_other_addresses_are_no_links(text: str) -> None:
    assert "<a " not in html(TextMetadata(), text)


def test_an_address_within_a_link_is_its_text() -> None:
    assert html(TextMetadata(), "[https://a.example](https://b.example)").count("<a ") == 1


def test_plain_text_stays_as_it_is() -> None:
    assert '<pre class="plain"><code>*a*\n  b</code></pre>' in html(TextMetadata(format="plain"), "*a*\n  b")


def test_thinking_is_folded() -> None:
    found = html(ThinkingMetadata(), "*Hm*")
    assert "<details><summary>Thinking</summary>" in found
    assert "<em>Hm</em>" in found


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(400, "400 ms"), (2_340, "2.3 s"), (12_900, "12 s"), (59_999, "59 s"), (61_000, "1 min 01 s")],
)
def test_thinking_says_how_long_it_took(milliseconds: int, words: str) -> None:
    found = html(ThinkingMetadata(duration_ms=milliseconds), "Hm")
    assert f"<summary>Thought for {words}</summary>" in found


def test_code_has_numbers_colours_and_a_button_to_copy_it() -> None:
    found = html(CodeBlockMetadata(language="python", purpose="example"), "def a():\n    '''b\n    c'''\n")
    assert '<pre data-part="numbers">1\n2\n3</pre>' in found
    assert '<span class="k">def</span>' in found
    assert '<span class="s">&#x27;&#x27;&#x27;b</span>\n<span class="s">    c&#x27;&#x27;&#x27;</span>' in found
    assert '<button type="button" class="copy" data-copy>Copy</button>' in found


def test_a_reference_tells_its_path_and_counts_from_its_first_line() -> None:
    metadata = CodeReferenceMetadata(file_path="src/a.py", start_line=9, end_line=10, language="python")
    found = html(metadata, "a\nb")
    assert '<code class="path">src/a.py</code><span class="note">lines 9 to 10</span>' in found
    assert '<pre data-part="numbers">9\n10</pre>' in found
    one = CodeReferenceMetadata(file_path="src/a.py", start_line=9, end_line=9, language="python")
    assert "line 9<" in html(one, "a")


@pytest.mark.parametrize("language", ["", "text", "klingon", "python3000", "PYTHON ", "../../x", "<b>"])
def test_a_language_is_known_by_its_name_or_not_at_all(language: str) -> None:
    assert ("<span" in highlighted("def a(): pass", language)) is (language == "PYTHON ")


@pytest.mark.parametrize(
    "code", ["x = 1\n" * 40_000, "x = 1;" * 200, "x = 1" + "\n" * 200, "if x\n" * 40, "\ufeffx = 1"]
)
def test_what_takes_long_or_would_not_come_back_as_it_was_has_no_colours(code: str) -> None:
    assert "<span" not in highlighted(code, "python")


def test_no_lexer_changes_the_text() -> None:
    for language in ("python", "html", "diff", "pycon", "bash", "json", "md", "rst", "http", "console"):
        code = "\n\n  <p a='b'>\n$ x = 1 # c\n+a\n-b\n>>> d\n\n"
        assert text_of(highlighted(code, language)) == code


def test_pygments_is_imported_when_there_is_something_to_colour() -> None:
    script = (
        "import sys; from cursor_gateway.render.html import code; code.highlighted('x', 'text');"
        "sys.exit('pygments' in sys.modules or 'rich' in sys.modules)"
    )
    loaded = "import sys; sys.modules['cursor_gateway'] = type(sys)('cursor_gateway');"
    path = f"sys.modules['cursor_gateway'].__path__ = {[*sys.modules['cursor_gateway'].__path__]!r};"
    assert subprocess.run([sys.executable, "-c", loaded + path + script], check=False).returncode == 0


# --- changes ----------------------------------------------------------------------------------------


def test_an_edit_is_a_unified_diff() -> None:
    old = "\n".join(["import os", *(f"a{number}" for number in range(10)), "return 1", "end"])
    new = old.replace("import os", "import os\nimport sys").replace("return 1", "return 2")
    found = html(edit("edit", Diff(old_string=old, new_string=new, start_line=9, end_line=21)))
    assert '<ins aria-label="2 lines added">+2</ins> <del aria-label="1 line removed">−1</del>' in found
    gutter = re.search(r'<div class="gutter" aria-hidden="true">(.*?)</div>', found, re.DOTALL)
    assert gutter
    olds, news, signs = (column.split("\n")[1:-1] for column in re.findall(r"<pre>(.*?)</pre>", gutter[1], re.DOTALL))
    assert olds == ["9", "", "10", "11", "12", "", "17", "18", "19", "20", "", "21"]
    assert news == ["9", "10", "11", "12", "13", "", "18", "19", "20", "", "21", "22"]
    assert "".join(signs) == " +   ⋮   −+ "
    lines = re.sub(r'<span class="[a-z]{1,2}">(.*?)</span>', r"\1", found)
    assert "<ins>import sys\n</ins>" in lines
    assert "<del>return 1\n</del><ins>return 2\n</ins><span>end\n</span>" in lines
    assert '<span class="gap">4 unchanged lines\n</span>' in lines


def test_lines_that_did_not_change_are_counted() -> None:
    old = "\n".join(f"a{number}" for number in range(20))
    found = html(edit("edit", Diff(old_string=old, new_string=f"b\n{old}", start_line=1, end_line=20)))
    assert found.count("unchanged line") == 1
    assert "17 unchanged lines" in found
    same = html(edit("edit", Diff(old_string=old, new_string=old, start_line=1, end_line=20)))
    assert "listing" not in same


def test_a_created_file_is_all_added() -> None:
    found = html(edit("create"), "a\n\nb\n")
    assert "+3</ins>" in found
    assert "<del" not in found
    assert "<pre>\n1\n2\n3\n</pre><pre>\n+\n+\n+\n</pre>" in found
    assert "<ins>a\n\nb\n</ins>" in found
    assert "data-copy" in found
    assert "listing" not in html(edit("create"), "")


def test_other_operations_say_what_they_did() -> None:
    assert "Deletedsrc/a.py" in text(edit("delete"))
    assert "Renamedsrc/a.pywas b.py" in text(edit("rename", old_path="b.py"))
    assert "was unknown" in text(edit("rename"))
    assert "x = 1" in text(edit("edit"), "x = 1")


def test_an_edit_that_did_not_happen_says_so() -> None:
    rejected = FileEditMetadata(
        file_path="a.py", operation="edit", language="python", state="rejected", reason="The user said no"
    )
    found = html(rejected)
    assert 'data-state="rejected"' in found
    assert "Edita.py" in text_of(found)
    assert '<span class="state">rejected</span> The user said no' in found


def test_a_huge_change_is_not_compared() -> None:
    old, new = ("\n".join(f"{sign}{number}" for number in range(3000)) for sign in "ab")
    assert '<ins aria-label="3,000 lines added">' in html(
        edit("edit", Diff(old_string=old, new_string=new, start_line=1, end_line=1))
    )


# --- tools ------------------------------------------------------------------------------------------


def test_a_command_tells_where_how_and_how_long() -> None:
    found = html(command(output="50%\r100%\nok\n"))
    assert '<code class="path">/home/dev</code>' in found
    assert '<code data-part="code">make all</code>' in found
    assert "with network" in found
    assert "100%\nok</code>" in found
    assert '<span class="good">✓ exit 0</span><span class="note">1.8 s</span>' in found


def test_a_command_that_failed_or_never_ran() -> None:
    assert '<span class="bad">✗ exit 2</span>' in html(command(2, state="failed"))
    assert "timed out" in text(command(-1, state="timed_out"))
    assert "rejectednobody wants it" in text(command(-1, state="rejected"))
    assert "ended without an exit status" in text(command(-1))


def test_a_tool_is_folded_with_its_arguments_and_result() -> None:
    found = html(call({"hits": ["é"]}, query="Where?"))
    assert "<details><summary>" in found
    assert "searchWhere?12 ms" in text_of(found)
    assert "{\n  &quot;query&quot;: &quot;Where?&quot;\n}" in found
    assert "&quot;é&quot;" in found
    assert "line 1\nline 2</code>" in html(call("line 1\nline 2"))
    assert "No details." in html(call())


def test_a_tool_that_did_not_complete_says_so() -> None:
    found = text(call(state="timed_out"))
    assert "✗" in found
    assert "timed out" in found
    assert "too slow" in found


@pytest.mark.parametrize(
    ("milliseconds", "expected"), [(0, ""), (999, "999 ms"), (59_949, "59.9 s"), (61_000, "1 min 01 s"), (-1, "")]
)
def test_durations(milliseconds: int, expected: str) -> None:
    metadata = ToolCallMetadata(
        tool_name="t",
        tool_call_id="c",
        arguments={},
        result=ToolCallResult(status="success", data=None),
        duration_ms=milliseconds,
    )
    assert text(metadata).strip() == f"✓t{expected}No details."


def test_known_tools_have_the_names_that_people_use() -> None:
    known = msgspec.structs.replace(call(), tool_name="read_file")
    assert '<span class="tool" title="read_file">Read file</span>' in html(known)
    assert '<code class="tool">search</code>' in html(call())


def test_what_needs_permission_says_so_and_took_no_time() -> None:
    asked = PermissionRequest(subject="make all", rules=["Shell(make)"])
    refused = msgspec.structs.replace(command(exit_code=-1, state="rejected"), permission=asked)
    assert "needs permission" in text(refused)
    assert "rejected" not in text(refused)
    assert "1.8 s" not in text(refused)
    assert "rejected" in text(command(exit_code=-1, state="rejected"))


def test_a_question_that_waits_says_so_above_it() -> None:
    waiting = msgspec.structs.replace(question(), state="waiting")
    header, rest = html(waiting).split("</header>")
    assert "waiting for you" in header
    assert "waiting for you" not in rest


# --- plans, questions, errors -----------------------------------------------------------------------


def todo(id: str, *dependencies: str) -> PlanTodo:
    return PlanTodo(id=id, content=f"Do `{id}`", status="pending", dependencies=list(dependencies))


def test_a_plan_is_a_checklist_with_dependencies() -> None:
    found = html(plan(todo("a"), todo("b", "a", "nowhere")), "# Auth\n\nSome *steps*.")
    assert found.count("Auth</h3>") == 1
    assert "Some <em>steps</em>." in found
    assert "0 of 2 done" in found
    assert '<li value="2" data-status="pending">' in found
    assert "<span>Do <code>b</code></span>" in found
    assert '<span class="after">after 1</span>' in found
    assert "untitled" in text(PlanMetadata(title="", overview="", todos=[]))


def test_an_answer_shows_its_plan_as_it_ended() -> None:
    documents = [
        make_document("doc_001", 1, "", plan(todo("a"), todo("b", "a"))),
        make_document("doc_002", 2, None, TodoUpdateMetadata(todos=[TodoChange(id="a", status="completed")])),
        make_document("doc_003", 3, None, TodoUpdateMetadata(todos=[TodoChange(id="b", status="in_progress")])),
        make_document(
            "doc_004", 4, None, TodoUpdateMetadata(todos=[TodoChange(id="b", status="completed")], state="failed")
        ),
    ]
    first, second, third, failed, _ = render_answer(documents).split("</article>\n")
    assert "1 of 2 done" in first
    assert '<li value="1" data-status="completed">' in first
    assert '<li value="2" data-status="in_progress">' in first
    assert "after" not in first
    assert "<code>a</code>" in second
    assert "<code>b</code>" not in second
    assert '<li value="2"' in third
    assert "1 of 2 done" in failed
    assert "failed" in failed


def test_a_list_may_be_replaced_and_a_second_plan_leaves_the_first() -> None:
    change = TodoUpdateMetadata(todos=[TodoChange(id="c", status="completed", content="New")], merge=False)
    documents = [
        make_document("doc_001", 1, "", plan(todo("a"))),
        make_document("doc_002", 2, None, change),
        make_document("doc_003", 3, "", plan(todo("a"), todo("b"))),
        make_document("doc_004", 4, None, TodoUpdateMetadata(todos=[TodoChange(id="a", status="completed")])),
    ]
    first, _, third, _, _ = render_answer(documents).split("</article>\n")
    assert "New" in first
    assert "1 of 1 done" in first
    assert "1 of 2 done" in third


def test_a_question_is_a_form() -> None:
    found = html(question(), "Before I go on")
    assert '<form data-answer="doc_001"><fieldset data-question="q1"><legend>Which?</legend>' in found
    assert '<label><input type="radio" name="doc_001-1" value="j"><span>JWT</span></label>' in found
    assert 'type="text"' in found
    assert '<button type="submit">Answer</button>' in found
    assert 'type="checkbox"' in html(question(several=True))
    assert "The agent asks:" in html(question())


def test_an_answered_question_shows_the_answer() -> None:
    found = html(question(ClarificationAnswer(question_id="q1", selected_option_ids=["s"], text="now & then")))
    assert 'value="s" checked disabled>' in found
    assert 'value="j" disabled>' in found
    assert 'value="now &amp; then"' in found
    assert "submit" not in found


def test_an_error_tells_what_where_and_what_to_do() -> None:
    found = html(ErrorMetadata(error_code="AGENT_OVERLOADED", source="agent", details="HTTP 529"), "Try later.")
    assert '<p class="message">Try later.</p>' in found
    assert "<code>AGENT_OVERLOADED</code>" in found
    assert "from agent" in found
    assert "This may be temporary. Retry." in found
    assert "HTTP 529" in found
    assert 'data-of="run"' in found
    other = html(ErrorMetadata(error_code="FILE_NOT_FOUND", source="", details=""), "")
    assert "It failed without a message." in other
    assert "Retry" not in other


def test_names_in_errors_are_code() -> None:
    found = html(ErrorMetadata(error_code="GONE", source="edit_file", details=""), "Set `port` to <b>, or `a\nb`.")
    assert "Set <code>port</code> to &lt;b&gt;, or `a\nb`." in found
    assert 'data-of="tool"' in found


def test_a_run_that_was_stopped_is_no_error() -> None:
    found = html(ErrorMetadata(error_code="CANCELLED", source="agent", details=""), "The run was cancelled.")
    assert 'class="document error stopped"' in found
    assert 'aria-label="Stopped"' in found
    assert "CANCELLED" not in found


def test_a_tool_that_failed_says_why() -> None:
    failed = FileEditMetadata(
        file_path="a.py", operation="edit", language="python", state="failed", reason="`a.py` is locked"
    )
    assert '<span class="state">failed</span> <code>a.py</code> is locked' in html(failed)
    assert "nobody wants it" in text(command(-1, state="timed_out"))


def test_edits_and_commands_can_be_summed_up() -> None:
    diff = Diff(old_string="a\nb\n", new_string="a\nc\nd\n", start_line=1, end_line=2)
    assert 'data-path="src/a.py" data-operation="edit" data-added="2" data-removed="1"' in html(edit("edit", diff))
    assert 'data-exit="2"' in html(command(2))


@pytest.mark.parametrize("rules", [["Shell(npm)", "Shell(tail)"], []])
def test_a_command_that_needs_permission_has_the_decisions(rules: list[str]) -> None:
    asked = PermissionRequest(subject="npm test | tail", rules=rules)
    found = html(msgspec.structs.replace(command(-1, state="rejected"), permission=asked))
    assert 'data-permission="doc_001"' in found
    assert "Allow once" in found
    assert ("Always in this conversation" in found) == bool(rules)
    assert ("<code>Shell(tail)</code>" in found) == bool(rules)
    assert "data-permission" not in html(msgspec.structs.replace(command(), permission=asked))


def test_a_request_for_permission_shows_what_is_asked_for() -> None:
    asked = PermissionRequest(subject="npm <b>", rules=["Shell(npm)"])
    waiting = msgspec.structs.replace(question(), permission=asked, state="waiting")
    found = html(waiting, "The agent asks for permission")
    assert "npm &lt;b&gt;" in found
    assert "waiting for you" in found
    assert "<fieldset" not in found
    decided = ClarificationAnswer(question_id="q1", selected_option_ids=["deny"], text="Not <now>")
    shown = html(msgspec.structs.replace(question(decided), permission=asked))
    assert '<span class="state">denied</span>' in shown
    assert "Not &lt;now&gt;" in shown
    assert "<form" not in shown


def test_long_code_is_folded_and_drawings_are_shown_as_source() -> None:
    short, long = (html(CodeBlockMetadata(language="mermaid", purpose="example"), "a\n" * lines) for lines in (30, 31))
    assert "<details" not in short
    assert "Show all 31 lines" in long
    assert "Mermaid diagram (source)" in short


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("- [ ] a", 'aria-label="To do">☐</span>a'),
        ("- [X] a *b*", 'aria-label="Done">☑</span>a <em>b</em>'),
        ("- [y] a", "[y] a"),
        ("- *[x] a*", "[x] a"),
        ("[ ] a", '<p dir="auto">[ ] a</p>'),
        ("a[^1]\n\n[^1]: word", '<p dir="auto"><sup>1</sup> word</p>'),
        ("[^a b]", "[^a b]"),
        ("$$\nx\n$$", '<figure class="formula"><math display="block" aria-label="x"><mrow><mi>x</mi>'),
        ("$$x$$", '<figure class="formula">'),
        ("$$x$$ and $$y$$", "</math> and <math"),
        ("\\[\nx\n\\]", '<figure class="formula">'),
        ("$$\\frac$$", "Formula (source)"),
        ("$$\n" + "{" * 100 + "x" + "}" * 100 + "\n$$", "Formula (source)"),
        ("a $$x$$ b \\(y\\) $z$", '<math display="inline" aria-label="z"><mrow><mi>z</mi></mrow></math>'),
        ("a $\\frac$", "a <code>$\\frac$</code>"),
        ("a \\[x^2\\]", '<math display="inline" aria-label="x^2">'),
        ("a \\[x\\] \\(  \\)", "a [x] (  )"),
        ("It costs $5 or 10$.", "It costs $5 or 10$."),
        ("$HOME/$USER, US$5, $ x$", "$HOME/$USER, US$5, $ x$"),
        ("$$\n\\begin{aligned}a&=b\\\\&=c\\end{aligned}\n$$", "<mtable"),
        ("$$\n\\begin{cases}a&b&c\\end{cases} &\n$$", "Formula (source)"),
        ("$$\n\\href{javascript:x}{y}\\color{red}z\n$$", "<mi>z</mi>"),
        ("$$\n\\text{<b>}\n$$", "<mtext>&lt;b&gt;</mtext>"),
        (
            "![a](docs/a%20b.png)",
            '<span class="picture" data-image="docs/a b.png">a (<code>docs/a b.png</code>)</span>',
        ),
        ("![a](file:///tmp/b.webp)", 'data-image="/tmp/b.webp"'),
        ("![a](docs/a.svg)", "a (<code>docs/a.svg</code>)"),
        ("![a](//host/a.png)", "a (<code>//host/a.png</code>)"),
        ("$$\nx", '<p dir="auto">$$\nx</p>'),
        ("$$\n\n$$", '<p dir="auto">$$</p>'),
        ("$$\n" + "x\n" * 300 + "$$", '<p dir="auto">$$\n'),
        ("    $$\n    x", "<code"),
        ("a\n$$\nx\n$$\nb", '<figure class="formula">'),
    ],
)
def test_more_than_commonmark(text: str, shown: str) -> None:
    assert shown in html(TextMetadata(), text)


def command_html(output: str) -> str:
    return html(TerminalCommandMetadata(command="x", output=output, exit_code=0, duration_ms=0, permissions=[]))


def test_code_and_what_follows_it_stay_in_their_list_item() -> None:
    inside = CodeBlockMetadata(language="sh", purpose="new_code", indent=3)
    assert 'data-depth="1"' in html(inside, "make")
    assert 'data-depth="2"' in html(CodeBlockMetadata(language="sh", purpose="new_code", indent=5), "make")
    assert "data-depth" not in html(CodeBlockMetadata(language="sh", purpose="new_code"), "make")
    after = render_document(make_document("doc_003", 3, "     Then.\n\n     More.\n\n2. Next", TextMetadata()))
    assert '<div class="prose continued"><ul dir="auto">\n<li>\n<ul dir="auto">' in after
    assert '<ol start="2" dir="auto">' in after
    assert "<figure" not in after  # five spaces are no code here


def test_only_what_can_follow_code_in_a_list_item_belongs_to_one() -> None:
    assert "<figure" in html(TextMetadata(), "    code at the very beginning")
    far = render_document(make_document("doc_002", 2, " " * 12 + "far", TextMetadata()))
    assert "<figure" in far
    assert "continued" not in render_document(make_document("doc_002", 2, " one space", TextMetadata()))


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (
            "\x1b[31mred\x1b[0m and \x1b[1;32mok\x1b[m",
            '<span class="ansi_red">red</span> and <span class="ansi_bold ansi_green">ok',
        ),
        ("\x1b[91;3;4mx\x1b[23;24;39my", '<span class="ansi_italic ansi_red ansi_underline">x</span>y'),
        ("\x1b[1mx\x1b[22my", '<span class="ansi_bold">x</span>y'),
        ("\x1b[38;5;9ma\x1b[38;5;240mc", '<span class="ansi_red">a</span>c'),
        ("\x1b[38;5;46mb", '<span class="ansi_green">b</span>'),
        (
            "\x1b[38;2;20;20;250ma\x1b[48;5;1mb\x1b[38;9mc",
            '<span class="ansi_blue">a</span><span class="ansi_blue">b</span>c',
        ),
        ("\x1b[34m 10%\r\x1b[32m100%\r\n\x1b[0mnext", '<span class="ansi_green">100%</span>\nnext'),
        ("\x1b[31m<b>\x1b]0;title\x07", '<span class="ansi_red">&lt;b&gt;</span>'),
        ("\x1b[31m \x1b[58mx\x1b[99999999999999mx", ' <span class="ansi_red">x</span><span class="ansi_red">x</span>'),
    ],
)
def test_output_has_the_colours_that_it_sets(output: str, shown: str) -> None:
    assert f"<code>{shown}" in command_html(output)


def test_long_output_shows_its_end_and_how_much_there_is() -> None:
    assert "Show all 16 lines" in command_html("\n".join("x" * 16))
    assert "Show all" not in command_html("\n".join("x" * 15))


_TEXTS = st.lists(st.sampled_from(["", "a", "b"]), max_size=6).map(lambda lines: "".join(f"{line}\n" for line in lines))


@given(_TEXTS, _TEXTS)
def test_a_card_counts_the_lines_that_the_list_of_changes_counts(before: str, after: str) -> None:
    assume(before != after)
    shown = change(line_diff(before, after), "")
    hunks = hunks_between(before.splitlines(), after.splitlines())
    counted = sum(hunk.added for hunk in hunks), sum(hunk.removed for hunk in hunks)
    assert (shown.added, shown.removed) == counted
