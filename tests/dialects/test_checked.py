"""Answers that must have a format: held back, checked, and repaired once."""

import pytest
from hypothesis import given
from hypothesis.strategies import lists, sampled_from
from msgspec.structs import replace

from cursor_gateway.dialects.checked import Check, CheckedText
from cursor_gateway.dialects.deltas import add_usage
from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model import document_events
from cursor_gateway.model.documents import CodeBlockMetadata, TerminalCommandMetadata, ThinkingMetadata
from cursor_gateway.prompting.structured import JsonObject
from tests.dialects.runs import USAGE, done, ended, paused, words

CHECK = Check(JsonObject())
HELD: list[document_events.DocumentEvent] = [
    document_events.Reasoning("Hm", opens=True),
    document_events.DocumentStarted("doc_002", "thinking", 2),
    document_events.ContentDelta("doc_002", "So", raw=""),
    ended(ThinkingMetadata(), "So", 2),
    document_events.DocumentStarted("doc_003", "terminal_command", 3),
    ended(TerminalCommandMetadata(command="ls", exit_code=0, output="", duration_ms=1, permissions=[]), None, 3),
]
FENCED: list[document_events.DocumentEvent] = [
    document_events.DocumentStarted("doc_004", "code_block", 4, raw="```json\n"),
    document_events.ContentDelta("doc_004", '{"a": 1}', raw='{"a": 1}\n'),
    replace(ended(CodeBlockMetadata(language="json", purpose="example"), '{"a": 1}', 4), raw="```\n"),
]


def push(stage: CheckedText, events: list[document_events.DocumentEvent]) -> list[document_events.DocumentEvent]:
    return [shown for event in events for shown in stage.push(event)]


def text_of(events: list[document_events.DocumentEvent]) -> str:
    return "".join(map(document_events.source_text, events))


def test_nothing_is_shown_before_the_end() -> None:
    stage = CheckedText(CHECK)
    assert push(stage, [*HELD, *words('{"a"', ": 1}")]) == []
    *shown, end = stage.push(done())
    assert (text_of(shown), stage.json, stage.repair, end) == ('{"a": 1}', '{"a": 1}', "", done())


def test_the_json_alone_is_the_last_text_and_everything_else_stays() -> None:
    shown = push(
        CheckedText(CHECK), [*words("Here:\n\n"), *HELD, *FENCED, *words("\nDone."), replace(done(), raw="\n")]
    )
    assert shown[: len(HELD)] == HELD
    started, delta, finished, end = shown[len(HELD) :]
    assert isinstance(started, document_events.DocumentStarted)
    assert isinstance(delta, document_events.ContentDelta)
    assert isinstance(finished, document_events.DocumentEnded)
    assert (started.type, delta.text, finished.document.content) == ("text", '{"a": 1}', '{"a": 1}')
    assert started.id == delta.id == finished.document.id
    assert end == done()


def test_json_that_is_quoted_before_the_last_action_is_not_the_answer() -> None:
    assert text_of(push(CheckedText(CHECK), [*words('It has {"b": [1, 2]}.'), *HELD, *FENCED, done()])) == '{"a": 1}'


def test_another_answer_is_asked_for_once() -> None:
    stage = CheckedText(CHECK)
    assert push(stage, [*HELD, *words("No."), done()]) == []
    assert "There is no JSON in it." in stage.repair
    *shown, end = push(stage, [*words("{}"), done()])
    assert (text_of(shown), stage.json) == ("{}", "{}")
    envelope = replace(done().envelope, usage=add_usage(USAGE, USAGE))
    assert end == replace(done(), envelope=envelope, last_call=USAGE)


def test_two_answers_without_the_format_are_a_failure() -> None:
    stage = CheckedText(CHECK)
    (end,) = push(stage, [*words("No."), done(), *HELD, *words("Still no."), done()])
    assert isinstance(end, document_events.Done)
    assert end.failure is not None
    assert (end.failure.code, end.failure.param) == ("answer_unfit", "response_format")
    assert stage.json is None


def test_a_repair_that_cannot_start_is_a_failure() -> None:
    stage, failure = CheckedText(CHECK), AgentCrashed().failure()
    push(stage, [*words("No."), done()])
    assert stage.failed(failure) == replace(done(), failure=failure)


@pytest.mark.parametrize("begun", [[], HELD, words("{")])
def test_a_run_that_failed_has_only_its_end(begun: list[document_events.DocumentEvent]) -> None:
    failure = replace(AgentCrashed().failure(), retryable=True)
    stage = CheckedText(CHECK)
    assert push(stage, [*begun, done(failure)]) == [
        replace(done(failure), failure=failure.final() if begun else failure)
    ]
    assert stage.repair == ""


def test_an_answer_that_pauses_is_shown_as_it_is() -> None:
    shown = push(CheckedText(CHECK), [*words("Let me ", "look."), *HELD, replace(paused("k"), raw="\n")])
    assert shown[: len(HELD)] == HELD
    assert (text_of(shown), shown[-1]) == ("Let me look.\n", paused("k"))
    assert push(CheckedText(CHECK), [paused("k")]) == [paused("k")]


@pytest.mark.parametrize("check", [Check(JsonObject(), stop=("two",)), Check(JsonObject(), max_tokens=2)])
def test_an_answer_that_is_cut_off_is_shown_at_once(check: Check) -> None:
    stage = CheckedText(check)
    *early, last = words("one ", "two three")[:3]
    assert push(stage, [*HELD, *early]) == []
    shown = stage.push(last)
    assert (shown[: len(HELD)], text_of(shown), stage.json) == (HELD, "one two three", None)


@given(lists(sampled_from([*HELD, *FENCED, *words("{}", "No.")]), max_size=12), sampled_from([done(), paused("k")]))
def test_any_events_are_shown_or_asked_for_again(
    events: list[document_events.DocumentEvent], end: document_events.DocumentEvent
) -> None:
    """Everything but the text stays, in its order; the text is the agent's, or the JSON in it."""
    stage = CheckedText(CHECK)
    shown = push(stage, [*events, end])
    assert (shown == []) == bool(stage.repair)
    if shown:
        others = [event for event in shown[:-1] if event in HELD]
        assert others == [event for event in events if event in HELD]
        assert text_of(shown) == (text_of(events) if stage.json is None else stage.json)
        assert shown[-1] == end
