"""The steps of a message: blocks one after another, the agent's text to the byte, and always something to see."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

from cursor_gateway.dialects.deltas import MARK, ActionDisplay, refusal_line
from cursor_gateway.dialects.messages.encoder import (
    NOTHING_SAID,
    BlockClosed,
    BlockOpened,
    BlockStep,
    Composer,
    Display,
    Finished,
    Grew,
    WholeBlock,
)
from cursor_gateway.dialects.messages.shapes import MessageUsage, StopReason, ToolUseBlock, WebSearchResult
from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.document_events import DocumentEvent, DocumentStarted, Reasoning
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    ClarificationQuestion,
    RefusedCall,
    TerminalCommandMetadata,
    ToolCallMetadata,
    ToolCallResult,
)
from cursor_gateway.stages.cutting import Cutter
from tests.dialects.runs import done, ended, paused, words

RAN = ended(TerminalCommandMetadata(command="ls", exit_code=0, output="a", duration_ms=1, permissions=[]), sequence=2)
SEARCHED = ended(
    ToolCallMetadata(
        tool_name="web_search",
        tool_call_id="t",
        arguments={"search_term": "x"},
        result=ToolCallResult(status="success", data=[]),
        duration_ms=1,
    )
)
ASKED = ended(ClarificationMetadata(questions=[ClarificationQuestion(id="q", text="Which?", options=[])]))
LINE = f"{MARK}Ran `ls` (exit status 0)\n"
TOKENS = MessageUsage(input_tokens=10, output_tokens=5)


def steps(
    events: list[DocumentEvent],
    *,
    thinking: bool = False,
    actions: ActionDisplay = "none",
    cutter: Cutter | None = None,
    display: Display | None = None,
) -> list[BlockStep]:
    composer = Composer("chat_0a1b", display or Display(thinking=thinking, actions=actions), cutter, 3)
    found = [step for event in events for step in composer.push(event)]
    assert composer.is_over == isinstance(found[-1], Finished)
    return found


def finished(reason: StopReason = "end_turn", sequence: str | None = None) -> Finished:
    return Finished(reason, sequence, TOKENS, None)


def text(*pieces: str) -> list[BlockStep]:
    return [BlockOpened("text"), *map(Grew, pieces), BlockClosed()]


def thinking(*pieces: str) -> list[BlockStep]:
    return [BlockOpened("thinking"), *map(Grew, pieces), BlockClosed()]


# --- text and thinking ------------------------------------------------------------------------------


def test_text_is_one_block() -> None:
    assert steps([*words("Hello ", "you."), done()]) == [*text("Hello ", "you."), finished()]


def test_thinking_is_a_block_of_its_own_if_it_is_wanted() -> None:
    events = [Reasoning("Hm", opens=True), Reasoning("…"), *words("Hi"), Reasoning("More", opens=True), done()]
    shown = [*thinking("Hm", "…"), *text("Hi"), *thinking("More"), finished()]
    assert steps(events, thinking=True) == shown
    assert steps(events) == [*text("Hi"), finished()]


def test_line_ends_between_blocks_of_thinking_begin_no_block() -> None:
    events = [Reasoning("a", opens=True), *words("Hi"), Reasoning("\n", opens=True), done()]
    assert steps(events, thinking=True) == [*thinking("a"), *text("Hi"), finished()]


def test_white_space_belongs_to_the_text_that_follows() -> None:
    events = [*words("Hi"), Reasoning("a", opens=True), *words("\n", "\n", "you"), Reasoning("b", opens=True)]
    shown = [*text("Hi"), *thinking("a"), *text("\n\nyou"), *thinking("b")]
    assert steps([*events, done()], thinking=True) == [*shown, finished()]
    assert steps([*events, *words("\n"), done()], thinking=True) == [*shown, *text("\n"), finished()]


# --- nothing to see ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([done()], text(f"{MARK}{NOTHING_SAID}")),
        ([*words(" \n"), done()], [*text(" \n"), *text(f"\n{MARK}{NOTHING_SAID}")]),
        ([RAN, done()], text(f"{MARK}{NOTHING_SAID}")),
        ([ASKED, RAN, done()], text(f"{MARK}Which?")),
        ([*words("Hm. "), ASKED, done()], text("Hm. ")),
        ([ASKED, *words("This one."), done()], text("This one.")),
    ],
)
def test_an_agent_that_says_nothing_is_spoken_for(events: list[DocumentEvent], said: list[BlockStep]) -> None:
    assert steps(events) == [*said, finished()]


def test_a_call_needs_no_words() -> None:
    call = ToolUseBlock("call_1", "look", Raw(b'{"a":1}'))
    assert steps([paused("call_1")]) == [WholeBlock(call), finished("tool_use")]


# --- actions ----------------------------------------------------------------------------------------


def test_actions_are_lines_of_thinking() -> None:
    events = [*words("Look:"), RAN, *words("There."), done()]
    line = thinking("Ran `ls` (exit status 0)\n")
    assert steps(events, thinking=True, actions="thinking") == [*text("Look:"), *line, *text("There."), finished()]
    assert steps(events, actions="thinking") == [*text("Look:", "There."), finished()]
    assert steps(events, thinking=True) == [*text("Look:", "There."), finished()]


def test_text_after_a_tool_is_another_block_also_where_the_tool_is_not_shown() -> None:
    tool = DocumentStarted("doc_002", "terminal_command", 2)
    events = [*words("Look:"), tool, RAN, *words("There."), done()]
    assert steps(events) == [*text("Look:"), *text("There."), finished()]


def test_actions_are_blocks_of_text() -> None:
    shown = steps([*words("Look:"), RAN, *words("There."), done()], actions="text")
    assert shown == [*text("Look:"), *text(f"\n{LINE}"), *text("There."), finished()]
    assert steps([RAN, *words("There."), done()], actions="text") == [*text(LINE), *text("There."), finished()]


def test_actions_are_server_tools_where_there_is_one() -> None:
    shown = steps([RAN, SEARCHED, ASKED, *words("There."), done()], actions="native")
    blocks = [step.block for step in shown if isinstance(step, WholeBlock)]
    ids = ["srvtoolu_0a1b_1", "srvtoolu_0a1b_1", "srvtoolu_0a1b_2", "srvtoolu_0a1b_2"]
    assert [getattr(block, "tool_use_id", None) or getattr(block, "id", None) for block in blocks] == ids
    assert [*text(f"{MARK}Asked Which?\n"), *text("There.")] == shown[4:-1]


def test_only_web_searches_are_shown_to_who_wants_only_those() -> None:
    shown = steps([RAN, SEARCHED, *words("There."), done()], display=Display(actions="search"))
    assert [type(step) for step in shown] == [WholeBlock, WholeBlock, BlockOpened, Grew, BlockClosed, Finished]
    assert isinstance(shown[1], WholeBlock)
    assert isinstance(shown[1].block, WebSearchResult)


# --- ends -------------------------------------------------------------------------------------------


def test_a_stop_sequence_is_named_and_ends_the_message() -> None:
    cutter = Cutter(("END",))
    composer = Composer("chat_0a1b", Display(), cutter, 3)
    assert composer.is_plain is False
    found = composer.push(words("x")[0])
    for event in words("a EN", "D b"):
        found += composer.push(event)
    assert found[:-1] == [BlockOpened("text"), Grew("a "), BlockClosed()]
    assert found[-1] == Finished("stop_sequence", "END", MessageUsage(input_tokens=3, output_tokens=1), None)
    assert (composer.is_cut, composer.is_over, composer.push(RAN)) == (True, True, [])


def test_a_limit_cuts_the_text() -> None:
    found = steps(words("one two three"), cutter=Cutter((), 2))
    assert isinstance(found[-1], Finished)
    assert (found[1], found[-1].stop_reason) == (Grew("one two "), "max_tokens")


def test_an_action_in_the_event_that_is_cut_is_not_shown() -> None:
    composer = Composer("chat_0a1b", Display(actions="text"), Cutter(("END",)))
    (event,) = [ended(RAN.document.metadata)]
    composer.push(words("x")[0])
    shown = composer.push(replace(event, raw="a END"))
    assert [step for step in shown if isinstance(step, Grew)] == [Grew("a ")]


def test_a_failure_ends_it_in_the_middle() -> None:
    failure = AgentCrashed().failure()
    composer = Composer("chat_0a1b", Display())
    assert (composer.is_plain, composer.failure) == (True, None)
    found = [step for event in [*words("Hel"), done(failure)] for step in composer.push(event)]
    assert found == [BlockOpened("text"), Grew("Hel"), Finished("end_turn", None, TOKENS, failure)]
    assert (composer.failure, composer.is_plain) == (failure, False)


REFUSED = RefusedCall(document="doc_001", subject="npm test", link="/#/c/conv_1/chat_1/doc_001")


def test_what_was_not_run_is_the_end_of_the_last_text() -> None:
    note, end = refusal_line([REFUSED]), done(refused=[REFUSED])
    display = Display(notes=True)
    *said, closed, finished = steps([*words("Hi"), end], display=display)
    assert said == [BlockOpened("text"), Grew("Hi"), Grew(f"\n\n{note}")]
    assert closed == BlockClosed()
    assert isinstance(finished, Finished)
    assert finished.cursor
    assert finished.cursor.refused == [REFUSED]
    silent = steps([RAN, end], display=display)
    assert silent[:-1] == [BlockOpened("text"), Grew(note), BlockClosed()]  # that is something to see
