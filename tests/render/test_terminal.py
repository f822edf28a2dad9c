"""Each document, and a whole run, as a person sees it."""

import re
import sys
import time
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.changes import FileChange
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallStarted,
)
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Diff,
    Envelope,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PermissionRequest,
    PlanMetadata,
    PlanTodo,
    ResponseMetadata,
    State,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoChange,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    Usage,
    make_document,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.render import terminal
from cursor_gateway.render.cards import Checklist, card, changed_file
from cursor_gateway.render.listing import finished_blocks
from cursor_gateway.render.terminal import TerminalView, make_console
from cursor_gateway.stages.diffs import line_diff
from tests.cli.recordings import EVERYTHING, HELLO, delta, init, result
from tests.render.views import RUN, events_of, on_screen, plain_text, whole, written

GREEN, RED, YELLOW = "\x1b[32m", "\x1b[31m", "\x1b[33m"


def command(output: str = "", *, exit_code: int = 0, state: State | None = None) -> TerminalCommandMetadata:
    return TerminalCommandMetadata(
        command="make all\n  things",
        exit_code=exit_code,
        output=output,
        duration_ms=1834,
        permissions=[],
        state=state or UNSET,
        reason="nobody wants it" if state else UNSET,
    )


def call(data: object = None, *, state: State | None = None, **arguments: object) -> ToolCallMetadata:
    return ToolCallMetadata(
        tool_name="search",
        tool_call_id="call_1",
        arguments=arguments,
        result=ToolCallResult(status="error" if state else "success", data=data),
        duration_ms=12,
        state=state or UNSET,
        reason="nobody wants it" if state else UNSET,
    )


def done(usage: Usage | None = None, *, duration_ms: int = 4200, failed: bool = False, model: str = "Opus 4.6") -> Done:
    envelope = Envelope(
        id="chat_1",
        conversation_id="conv_1",
        model=model,
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status="error" if failed else "completed",
        usage=usage or Usage(prompt_tokens=1200, completion_tokens=34, total_tokens=1234),
        metadata=ResponseMetadata(duration_ms=duration_ms, tool_call_count=0, turn_count=1),
    )
    return Done(envelope, AgentCrashed("It crashed.").failure() if failed else None)


# --- each document ----------------------------------------------------------------------------------


def test_text_is_drawn_as_markdown_on_a_terminal_and_left_as_it_is_in_a_file() -> None:
    events = events_of(init() + delta("# Title\n\nSome **bold** text.\n\n- a\n- b") + result(""))
    assert on_screen(events).startswith("Title\n\nSome bold text.\n\n • a\n • b\n")
    assert plain_text(events).startswith("# Title\n\nSome **bold** text.\n\n- a\n- b\n")


def test_a_code_block_is_highlighted() -> None:
    events = whole(CodeBlockMetadata(language="python", purpose="new_code"), "def f():\n    return 1")
    assert plain_text(events) == "python\n  def f():\n      return 1\n"
    assert "\x1b[94mdef" in written(events)


def test_a_reference_has_its_path_and_its_own_line_numbers() -> None:
    metadata = CodeReferenceMetadata(file_path="src/a.py", start_line=41, end_line=42, language="python")
    assert plain_text(whole(metadata, "x = 1\ny = 2")) == "src/a.py  lines 41-42\n  41 │ x = 1\n  42 │ y = 2\n"
    single = CodeReferenceMetadata(file_path="src/a.py", start_line=41, end_line=41, language="python")
    assert "src/a.py  line 41" in plain_text(whole(single, "x = 1"))


def test_a_long_path_is_shown_whole() -> None:
    path = "/" + "/".join(f"folder_{number}" for number in range(20)) + "/file.py"
    reference = CodeReferenceMetadata(file_path=path, start_line=1, end_line=1, language="python")
    edit = FileEditMetadata(file_path=path, operation="delete", language="python")
    for metadata in (reference, edit):
        assert path in "".join(on_screen(whole(metadata, "x"), width=40).split("\n"))


def test_an_edit_is_a_coloured_diff_with_counts() -> None:
    diff = Diff(old_string="a\nb", new_string="a\nB\nC", start_line=7, end_line=8)
    events = whole(FileEditMetadata(file_path="a.txt", operation="edit", language="text", diff=diff), "a\nB\nC")
    assert plain_text(events) == "✎ edit a.txt  +2 -1\n  7   a\n  8 - b\n  8 + B\n  9 + C\n"
    assert f"{RED}b" in written(events)
    assert f"{GREEN}B" in written(events)


def test_a_new_file_is_shown_to_a_sensible_length() -> None:
    content = "".join(f"line {number}\n" for number in range(1, 51))
    shown = plain_text(whole(FileEditMetadata(file_path="a.txt", operation="create", language="text"), content))
    assert shown.startswith("✎ create a.txt  +50\n  line 1\n")
    assert shown.endswith("  line 20\n  … 30 more lines\n")


def test_a_long_diff_is_folded() -> None:
    diff = line_diff("", "".join(f"{number}\n" for number in range(199)))
    shown = plain_text(whole(FileEditMetadata(file_path="a.txt", operation="edit", language="text", diff=diff)))
    assert shown.endswith("… 140 more lines\n")


def test_other_operations_say_what_happened_to_the_file() -> None:
    def shown(**fields: object) -> str:
        return plain_text(whole(FileEditMetadata(file_path="new.py", language="python", **fields), None))  # type: ignore[arg-type]

    assert shown(operation="delete") == "✎ delete new.py\n"
    assert shown(operation="rename", old_path="old.py") == "✎ rename new.py (was old.py)\n"
    assert shown(operation="rename") == "✎ rename new.py (was unknown)\n"
    assert shown(operation="edit", state="rejected", reason="no") == "✎ edit new.py\n  rejected: no\n"
    assert shown(operation="edit", state="failed", reason="told by the error") == "✎ edit new.py\n  failed\n"


def test_a_command_has_its_output_exit_status_and_duration() -> None:
    events = whole(command("one\ntwo\n"))
    assert plain_text(events) == "$ make all\n    things\n  one\n  two\n  ✓ exit 0 · 1.8 s\n"
    assert f"{GREEN}✓ exit 0" in written(events)
    assert f"{RED}✗ exit 3" in written(whole(command(exit_code=3, state="failed")))


def test_long_output_is_folded_in_the_middle() -> None:
    shown = plain_text(whole(command("".join(f"line {number}\n" for number in range(1, 101)))))
    assert "  line 8\n  … 76 more lines …\n  line 85\n" in shown
    assert "  line 100\n" in shown


def test_a_command_that_never_ran_says_why() -> None:
    assert "rejected: nobody wants it" in plain_text(whole(command(exit_code=-1, state="rejected")))
    assert "timed out" in plain_text(whole(command(exit_code=-1, state="timed_out")))
    assert "ended without an exit status" in plain_text(whole(command(exit_code=-1)))


def test_colours_and_progress_bars_in_output_leave_only_their_text() -> None:
    assert "  100%\n  ok\n" in plain_text(whole(command("10%\r100%\n\x1b[32mok\x1b[0m\x1b[2J\n")))


def test_a_tool_call_is_one_line_and_a_short_result() -> None:
    shown = plain_text(whole(call("1\n\n2\n3\n4\n5\n", limit=3, query="where?")))
    assert shown == "✓ search where?  12 ms\n  1\n  2\n  3\n  … 2 more lines\n"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, ""),
        ("", ""),
        ([], ""),
        ({}, "  {}\n"),
        ("text", "  text\n"),
        (["a\nb", {"k": [1]}], '  a b\n  {"k":[1]}\n'),
        ({"k": "\x1b[2Jv"}, '  {"k":"\\u001b[2Jv"}\n'),
        (7, "  7\n"),
        ("x" * 999, f"  {'x' * 299}…\n"),
    ],
)
def test_any_result_has_a_short_form(data: object, shown: str) -> None:
    assert plain_text(whole(call(data, query="q"))) == f"✓ search q  12 ms\n{shown}"


def test_a_refresh_leaves_nothing_behind_whenever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads change as often as they can, and one of them refreshes all the time."""
    monkeypatch.setattr(terminal, "_FRAMES_PER_SECOND", 2000)
    events, interval = whole(call("found", query="x")), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert {on_screen(events).rstrip() for _ in range(80)} == {"✓ search x  12 ms\n  found"}
    finally:
        sys.setswitchinterval(interval)


def test_on_a_terminal_a_call_and_its_result_never_wrap() -> None:
    lines = on_screen(whole(call("y" * 200, query="x" * 200)), width=40).split("\n")
    assert lines[:2] == [f"✓ search {'x' * 23}…  12 ms", f"  {'y' * 37}…"]


def test_a_failed_call_says_so_and_a_rejected_one_says_why() -> None:
    assert plain_text(whole(call(state="failed"))) == "✗ search  failed · 12 ms\n"
    assert plain_text(whole(call(state="rejected", path="p"))) == "✗ search p  rejected · 12 ms\n  nobody wants it\n"


def test_calls_in_a_row_stand_together_and_other_documents_apart() -> None:
    shown = plain_text([*whole(call(path="a")), *whole(call(path="b"), None, 2), *whole(command(), None, 3)])
    assert shown.startswith("✓ search a  12 ms\n✓ search b  12 ms\n\n$ make all\n")


PLAN = PlanMetadata(
    title="Work", overview="Do it well.", todos=[PlanTodo(id="a", content="First", status="pending", dependencies=[])]
)


def test_a_plan_has_its_title_overview_text_and_checklist() -> None:
    shown = plain_text(whole(PLAN, "# Steps\n"))
    assert shown == "◆ Plan · Work\nDo it well.\n\n# Steps\n\n  ☐ 1. First\n"
    bare = PlanMetadata(title="", overview="", todos=[], state="rejected", reason="no")
    assert plain_text(whole(bare)) == "◆ Plan · untitled\n  rejected: no\n"


def test_a_todo_update_shows_the_plans_checklist_anew() -> None:
    update = TodoUpdateMetadata(
        todos=[TodoChange(id="a", status="completed"), TodoChange(id="b", status="in_progress", content="Second")]
    )
    shown = plain_text([*whole(PLAN), *whole(update, None, 2)])
    assert shown.endswith("\nTo-dos · Work · 1 of 2 done\n  ☑ 1. First\n  ◐ 2. Second\n")


def test_an_update_that_did_not_happen_ticks_off_nothing() -> None:
    update = TodoUpdateMetadata(todos=[TodoChange(id="a", status="completed")], state="interrupted", reason="cut")
    assert plain_text([*whole(PLAN), *whole(update, None, 2)]).endswith("  ☐ 1. First\n  interrupted: cut\n")


def question(**fields: object) -> ClarificationMetadata:
    options = [ClarificationOption(id="y", label="Yes"), ClarificationOption(id="n", label="No")]
    questions = [
        ClarificationQuestion(id="q1", text="Really?", options=options),
        ClarificationQuestion(id="q2", text="Which?", options=options, allow_multiple=True),
    ]
    return ClarificationMetadata(questions=questions, **fields)  # type: ignore[arg-type]


def test_questions_have_their_options() -> None:
    assert plain_text(whole(question(), "Before I go on")) == (
        "? Before I go on\n  1. Really?\n     ○ Yes\n     ○ No\n"
        "  2. Which?  (several may be chosen)\n     ○ Yes\n     ○ No\n"
    )
    assert plain_text(whole(question(state="rejected", reason="skipped"))).endswith("rejected: skipped\n")


def test_chosen_options_are_marked() -> None:
    assert "●" not in plain_text(whole(question()))
    shown = plain_text(whole(question(answers=[ClarificationAnswer(question_id="q2", selected_option_ids=["n", "?"])])))
    assert shown.count("●") == 1
    assert shown.endswith("○ Yes\n     ● No\n")


def test_a_decision_takes_one_line() -> None:
    permission = PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    answers = [ClarificationAnswer(question_id="q1", selected_option_ids=["y"])]
    assert plain_text(whole(question(permission=permission, answers=answers))) == "? Yes: npm test\n"
    assert "○ No" in plain_text(whole(question(permission=permission)))


def test_the_changes_of_a_file_have_their_lines_if_they_are_wanted() -> None:
    diff = Diff(start_line=2, end_line=2, old_string="beta\n", new_string="gamma\n")
    file = FileChange(path="a.txt", operation="edit", language="text", diffs=[diff], note="Not read.")
    console = make_console(StringIO(), plain=True)
    head = "✎ edit a.txt  +1 -1\n"
    for with_lines, shown in ((False, head), (True, f"{head}  2 - beta\n  2 + gamma\n  Not read.\n")):
        with console.capture() as captured:
            console.print(changed_file(file, with_lines=with_lines))
        assert captured.get() == shown
    with console.capture() as captured:
        console.print(changed_file(replace(file, added=7, removed=5), with_lines=False))
    assert captured.get() == "✎ edit a.txt  +7 -5\n"


def test_an_error_is_red_and_says_what_code_and_details() -> None:
    events = whole(ErrorMetadata(error_code="TIMEOUT", source="search", details="after\n10 s"), "It took too long.")
    assert plain_text(events) == "✗ It took too long.\n  TIMEOUT · search\n  after\n  10 s\n"
    assert "\x1b[1;31m" in written(events)
    silent = whole(ErrorMetadata(error_code="", source="", details=""), "")
    assert plain_text(silent) == "✗ It failed without a message.\n"


def test_thinking_is_dimmed() -> None:
    events: list[DocumentEvent] = [
        DocumentStarted("doc_001", "thinking", 1),
        ContentDelta("doc_001", "First\n\nthen "),
        ContentDelta("doc_001", "second"),
        DocumentEnded(make_document("doc_001", 1, "First\n\nthen second", ThinkingMetadata())),
    ]
    assert plain_text(events) == "┊ First\n┊\n┊ then second\n"
    assert "\x1b[2;3mFirst" in written(events)


def test_prose_that_has_ended_is_drawn_as_it_was_while_it_grew() -> None:
    for metadata in (TextMetadata(), ThinkingMetadata()):
        out = StringIO()
        document = make_document("doc_001", 1, "Some\ntext", metadata)
        make_console(out, plain=True).print(card(document, Checklist()), soft_wrap=True)
        started, ended = whole(metadata, document.content)
        assert out.getvalue() == plain_text([started, ContentDelta("doc_001", "Some\ntext"), ended])


def test_thinking_that_was_not_asked_for_is_not_shown() -> None:
    assert "secret" not in written([Reasoning("secret", opens=True), done()])


# --- the closing line -------------------------------------------------------------------------------


def test_the_closing_line_has_status_time_tokens_and_model() -> None:
    assert plain_text([done()]) == "✓ completed in 4.2 s · 1,200 tokens in, 34 out · Opus 4.6\n"
    cached = Usage(prompt_tokens=9, completion_tokens=1, total_tokens=10, cached_tokens=7)
    assert "9 tokens in (7 cached), 1 out" in plain_text([done(cached)])
    for cost, shown in ((12.3, "$12.30"), (0.0123, "$0.0123"), (0.0, "$0.00")):
        priced = replace(cached, cost=cost)
        assert f"9 tokens in (7 cached), 1 out, {shown}" in plain_text([done(priced)])
    estimated = Usage(prompt_tokens=9, completion_tokens=1, total_tokens=10, estimated=True)
    assert "9 tokens in, 1 out, estimated" in plain_text([done(estimated)])


def test_the_closing_line_says_how_many_calls_were_not_run() -> None:
    end = done()
    metadata = replace(end.envelope.metadata, refused_count=2)
    end = replace(end, envelope=replace(end.envelope, metadata=metadata))
    assert plain_text([end]).startswith("✓ completed in 4.2 s · 2 not run · 1,200 tokens")


def test_the_closing_line_of_a_failed_run_is_red_and_says_only_what_is_known() -> None:
    nothing = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0, estimated=True)
    assert plain_text([done(nothing, duration_ms=0, failed=True, model="unknown")]) == "✗ failed\n"
    assert f"{RED}✗" in written([done(failed=True)])


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0, "completed ·"), (999, "in 999 ms"), (59_900, "in 59.9 s"), (61_000, "in 1 min 01 s")],
)
def test_durations_are_shown_in_fitting_units(milliseconds: int, expected: str) -> None:
    assert expected in plain_text([done(duration_ms=milliseconds)])


# --- a run as it happens ----------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 140])
def test_what_stays_on_the_terminal_does_not_depend_on_how_it_came(width: int) -> None:
    slow = on_screen(events_of(EVERYTHING), width=width, height=12)
    assert on_screen(read_events([EVERYTHING], RUN), width=width, height=50) == slow
    assert max(map(len, slow.split("\n"))) <= width


def test_text_taller_than_the_screen_ends_up_whole_and_once_in_the_scrollback() -> None:
    paragraphs = [f"Paragraph {number} is here.\n\n" for number in range(100)]
    code = ["```python\n", *(f"line_{number} = {number}\n" for number in range(100)), "```\n"]
    items = [f"- item {number}\n" for number in range(100)]
    text = [*paragraphs, *code, *items]
    recording = init() + b"".join(map(delta, text)) + result("".join(text))
    shown = on_screen(events_of(recording), height=10).split("\n")
    assert [line for line in shown if line.startswith("Paragraph")] == [text.strip() for text in paragraphs]
    assert [line for line in shown if "line_" in line] == [f"  line_{number} = {number}" for number in range(100)]
    assert [line for line in shown if "item" in line] == [f" • item {number}" for number in range(100)]


def frames(events: list[DocumentEvent], *expected: str) -> str:
    """What the terminal shows while the run goes on. Waits for the drawing thread, for long if need be."""
    out = StringIO()
    console = make_console(out, plain=False, width=80)
    console.height = 12
    with TerminalView(console) as view:
        for event in events:
            view.push(event)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not all(text in out.getvalue() for text in expected):
            time.sleep(0.01)
        return out.getvalue()


def test_open_text_is_seen_before_it_ends() -> None:
    events: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1), ContentDelta("doc_001", "Half a sen")]
    assert "Half a sen" in frames(events, "Half a sen")


def test_the_end_of_open_code_is_seen_with_its_line_numbers() -> None:
    known = KnownMetadata(file_path="a.py", start_line=100, end_line=160, language="python")
    lines = "".join(f"x{number}\n" for number in range(50))
    events: list[DocumentEvent] = [
        DocumentStarted("doc_001", "code_reference", 1, known),
        ContentDelta("doc_001", lines),
    ]
    assert "149 │ " in frames(events, "149 │ ")
    block: list[DocumentEvent] = [
        DocumentStarted("doc_001", "code_block", 1, KnownMetadata(language="python")),
        ContentDelta("doc_001", lines),
    ]
    assert "x49" in frames(block, "x49")


def test_the_end_of_a_very_long_paragraph_is_seen() -> None:
    events: list[DocumentEvent] = [
        DocumentStarted("doc_001", "text", 1),
        ContentDelta("doc_001", "word " * 5000 + "END"),
    ]
    assert "END" in frames(events, "END")
    events = [DocumentStarted("doc_001", "thinking", 1), ContentDelta("doc_001", "word " * 5000 + "\nEND")]
    assert "END" in frames(events, "END")


def test_running_tools_are_seen() -> None:
    asked = ClarificationQuestion(id="q", text="The question", options=[])
    events: list[DocumentEvent] = [
        DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="sleep\n 9")),
        DocumentStarted("doc_002", "file_edit", 2, KnownMetadata(file_path="src/a.py")),
        DocumentStarted("doc_003", "tool_call", 3),
        ToolCallStarted("doc_003", "read_file", "call_1"),
        ToolCallArguments("doc_003", {"target_file": "b.py"}),
        DocumentStarted("doc_004", "plan", 4, KnownMetadata(title="The plan")),
        DocumentStarted("doc_005", "clarification", 5, KnownMetadata(questions=[asked])),
        DocumentStarted("doc_006", "todo_update", 6),
        DocumentStarted("doc_007", "terminal_command", 7, KnownMetadata(command="seven")),
        DocumentStarted("doc_008", "text", 8),
        ContentDelta("doc_008", "meanwhile"),
    ]
    expected = ("sleep 9", "src/a.py", "b.py", "The plan", "The question", "to-dos", "and 1 more", "meanwhile")
    shown = frames(events, *expected)
    assert [text for text in expected if text not in shown] == []


def test_the_last_lines_of_a_running_command_are_seen_until_it_ends() -> None:
    started: DocumentEvent = DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="make"))
    output: list[DocumentEvent] = [TerminalOutput("doc_001", f"line {number}\n") for number in range(9)]
    shown = frames([started, *output], "line 8")
    assert "line 6" in shown
    view = TerminalView(make_console(StringIO(), plain=True))
    ended = DocumentEnded(make_document("doc_001", 1, None, command("all\n")))
    for event in (started, *output):
        view.push(event)
    assert view._region.output[0] == "doc_001"
    view.push(TerminalOutput("doc_002", "of another one"))
    assert view._region.output == ("doc_002", "of another one")
    view.push(TerminalOutput("doc_001", "x" * 9999))
    assert len(view._region.output[1]) == 2000
    view.push(ended)
    assert view._region.output == ("", "")


def test_waiting_and_thinking_are_seen() -> None:
    assert "waiting for the agent" in frames([], "waiting for the agent")
    assert "thinking" in frames([Reasoning("hm", opens=True)], "thinking")


def test_what_takes_long_says_how_long_and_how_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    console = make_console(StringIO(), plain=False, width=60)
    view, now = TerminalView(console), 0.0
    monkeypatch.setattr(console, "get_time", lambda: now)

    def drawn() -> str:
        with console.capture() as captured:
            console.print(view._region)
        return re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).strip()[2:]

    assert drawn() == "waiting for the agent"
    now = 3.5
    assert drawn() == "waiting for the agent  3 s · Ctrl-C stops"
    view.push(DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="make")))
    assert drawn() == "$ make"
    now = 10.0
    assert drawn() == "$ make  6 s"


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        (DocumentStarted("doc_001", "text", 1), "one\ntwo\n"),
        (DocumentStarted("doc_001", "thinking", 1), "┊ one\n┊ two\n"),
        (DocumentStarted("doc_001", "code_block", 1, KnownMetadata(language="sh")), "sh\n  one\n  two\n"),
        (DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="ls")), ""),
    ],
)
def test_a_view_that_is_broken_off_keeps_what_was_seen(started: DocumentStarted, shown: str) -> None:
    assert plain_text([started, ContentDelta("doc_001", "one\ntwo")]) == shown
    assert "⠋" not in on_screen([started, ContentDelta("doc_001", "one\ntwo")])


def test_a_long_open_block_costs_linear_time() -> None:
    """Not by the clock: how often the growing list is looked at."""
    looked = 0

    def counting(text: str) -> int:
        nonlocal looked
        looked += len(text)
        return finished_blocks(text)

    item = "- an item of a list\n"
    events: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1)]
    events += [ContentDelta("doc_001", item) for _ in range(2000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cursor_gateway.render.terminal.finished_blocks", counting)
        written(events)
    assert looked < 4 * 2000 * len(item)


# --- what must not happen ---------------------------------------------------------------------------

HOSTILE = "[bold red]not markup[/] :smile: \x1b[2J\x1b]0;owned\x07\x9b31m [link=http://x]y[/link]"


def hostile_documents() -> list[Metadata]:
    diff = Diff(old_string=HOSTILE, new_string=HOSTILE + "!", start_line=1, end_line=1)
    option = ClarificationOption(id="a", label=HOSTILE)
    return [
        CodeBlockMetadata(language=HOSTILE, purpose="new_code"),
        CodeReferenceMetadata(file_path=HOSTILE, start_line=1, end_line=2, language="python"),
        FileEditMetadata(file_path=HOSTILE, operation="edit", language="python", diff=diff),
        FileEditMetadata(file_path=HOSTILE, operation="create", language="python"),
        FileEditMetadata(file_path=HOSTILE, operation="rename", language="python", old_path=HOSTILE),
        ToolCallMetadata(
            tool_name=HOSTILE,
            tool_call_id="c",
            arguments={"path": HOSTILE},
            result=ToolCallResult(status="success", data=[HOSTILE, {HOSTILE: HOSTILE}]),
            duration_ms=1,
        ),
        call(state="rejected", path=HOSTILE),
        TerminalCommandMetadata(command=HOSTILE, exit_code=0, output=HOSTILE, duration_ms=1, permissions=[]),
        PlanMetadata(
            title=HOSTILE,
            overview=HOSTILE,
            todos=[PlanTodo(id="a", content=HOSTILE, status="pending", dependencies=[])],
        ),
        TodoUpdateMetadata(todos=[TodoChange(id=HOSTILE, status="pending")]),
        TodoUpdateMetadata(todos=[], state="rejected", reason=HOSTILE),
        ClarificationMetadata(questions=[ClarificationQuestion(id="q", text=HOSTILE, options=[option])]),
        ErrorMetadata(error_code=HOSTILE, source=HOSTILE, details=HOSTILE),
        ThinkingMetadata(),
        TextMetadata(),
    ]


@pytest.mark.parametrize("metadata", hostile_documents(), ids=lambda metadata: type(metadata).__name__)
def test_the_agents_text_is_neither_markup_nor_a_control_sequence(metadata: Metadata) -> None:
    content = f"{HOSTILE}\n\n{HOSTILE}"
    events = whole(metadata, content)
    if isinstance(metadata, TextMetadata | ThinkingMetadata):
        events = [events[0], ContentDelta("doc_001", content[:40]), ContentDelta("doc_001", content[40:]), events[1]]
    plain = plain_text(events)
    assert "\x1b" not in plain
    assert "\x07" not in plain
    assert "\x9b" not in plain
    assert "[bold red]not markup[/] :smile:" in plain
    on_screen(events)  # fails on any sequence that is not ours
    assert "\x9b" not in written(events)


PIECES = [
    "\n", "\n\n", "# ", "- ", "  ", "    ", "1. ", "> ", "```", "```py\n", "|", "a | b\n--|--\n", "**", "`", "_", "~~",
    "[x](y)", "![x](y)", "<b>", "---\n", "word ", "\t", "\x1b[1m", "日本語", "🚀", "&amp;", "&#27;", "\\", "[a]: /b\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40), st.integers(1, 100))
def test_any_text_can_be_drawn_at_any_width(pieces: list[str], width: int) -> None:
    events: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1)]
    events += [ContentDelta("doc_001", piece) for piece in pieces]
    on_screen([*events, DocumentEnded(make_document("doc_001", 1, "".join(pieces), TextMetadata()))], width=width)


def test_without_a_terminal_there_are_no_escape_codes_and_no_line_is_broken() -> None:
    long = "word " * 100
    shown = plain_text(events_of(init() + delta(long + "\n\n`code`") + result("")))
    assert "\x1b" not in shown
    assert long.strip() in shown
    assert "\x1b" not in plain_text(events_of(EVERYTHING))
    assert "\r" not in plain_text(events_of(EVERYTHING))


def test_drawn_and_plain_say_the_same_where_no_markdown_is_involved() -> None:
    run = RunInfo(id="chat_1", created=RUN.created)
    assert "Hello world!\n\n✓ completed in 4.2 s" in on_screen(events_of(HELLO, run))
    assert "Hello world!\n\n✓ completed in 4.2 s" in plain_text(events_of(HELLO, run))
