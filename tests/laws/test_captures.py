"""The laws, on every recording there is: real captures where they are at hand, and the scenarios."""

from pathlib import Path

import pytest

from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.model.documents import ErrorDocument
from cursor_gateway.model.requests import RunInfo
from tests.laws import laws
from tests.laws.agent import whole
from tests.laws.strategies import STRANGE_LINES

_PROJECT = Path(__file__).parents[2]
_CAPTURES = sorted(_PROJECT.parent.glob("shared/captures/*.jsonl"))
_SCENARIOS = sorted(_PROJECT.glob("tests/scenarios/*/agent.ndjson"))
_PATHS = [*_CAPTURES, *_SCENARIOS]
_NAMES = [path.stem if path in _CAPTURES else path.parent.name for path in _PATHS]

_EVERYTHING = RunInfo(id=laws.RUN.id, created=laws.RUN.created, include=frozenset({"thinking", "raw"}))

every_recording = pytest.mark.parametrize("path", _PATHS, ids=_NAMES)


@every_recording
@pytest.mark.parametrize("run", [laws.RUN, _EVERYTHING], ids=["as it is", "with everything"])
@pytest.mark.quick_cases(27)
def test_one_byte_at_a_time_is_the_same_as_all_at_once(path: Path, run: RunInfo) -> None:
    laws.assert_chunking_does_not_matter(path.read_bytes(), run)


@every_recording
def test_what_is_said_is_what_the_agent_says_it_said(path: Path) -> None:
    result = _result_of(path.read_bytes())
    events = laws.read(path.read_bytes())
    if result is None or _disagrees(path):
        laws.assert_says_exactly(laws.text_of(events), events)
    else:
        laws.assert_says_exactly(result, events)
        assert not laws.response_of(events).metadata.result_differs


@every_recording
def test_a_recording_gives_a_well_formed_stream(path: Path) -> None:
    laws.assert_well_formed(laws.read(path.read_bytes()))
    laws.assert_well_formed(laws.read(path.read_bytes(), _EVERYTHING))


@every_recording
def test_a_recording_with_a_result_is_completed_and_one_without_has_failed(path: Path) -> None:
    response = laws.response_of(laws.read(path.read_bytes()))
    if _result_of(path.read_bytes()) is None:
        assert response.status == "error"
        assert isinstance(response.documents[-1], ErrorDocument)
    else:
        assert response.status == "completed"


@every_recording
@pytest.mark.quick_cases(17)
def test_a_recording_cut_anywhere_says_that_it_failed(path: Path) -> None:
    data = path.read_bytes()
    whole = laws.text_of(laws.read(data))
    line_ends = [number + 1 for number, byte in enumerate(data) if byte == 0x0A]
    for cut in sorted({*line_ends[:60], *range(0, len(data), 1 + len(data) // 60), len(data) - 1}):
        laws.assert_a_cut_is_told(data, cut, whole=whole)


@every_recording
def test_the_stream_of_a_recording_folds_to_its_response(path: Path) -> None:
    laws.assert_the_stream_folds_to_the_response(laws.read(path.read_bytes()))
    laws.assert_the_stream_folds_to_the_response(laws.read(path.read_bytes(), _EVERYTHING))


@every_recording
@pytest.mark.parametrize("agent_tools", ["reasoning", "tool_calls", "none"])
@pytest.mark.quick_cases(41)
def test_the_chunks_of_a_recording_fold_to_its_completion(path: Path, agent_tools: AgentTools) -> None:
    for include_usage in (True, False):
        events = laws.read(path.read_bytes())
        laws.assert_the_chunks_fold_to_the_completion(events, agent_tools=agent_tools, include_usage=include_usage)


@every_recording
def test_readable_text_has_blank_lines_between_tools(path: Path) -> None:
    laws.assert_readable_text_has_blank_lines_between_tools(laws.read(path.read_bytes()))


@every_recording
@pytest.mark.quick_cases(17)
def test_a_strange_line_changes_nothing_but_its_count(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    if _result_of(path.read_bytes()) is None:
        pytest.skip("stray text explains why a run failed, so here it has a meaning")
    for number, strange in enumerate(STRANGE_LINES.values()):
        laws.assert_a_strange_line_changes_nothing(lines, number % len(lines), strange)


@every_recording
def test_thinking_adds_its_documents_and_changes_nothing_else(path: Path) -> None:
    laws.assert_thinking_only_adds_its_documents(path.read_bytes())


@every_recording
def test_fences_inline_and_split_have_the_same_text(path: Path) -> None:
    laws.assert_fences_do_not_change_the_text(path.read_bytes())


def _disagrees(path: Path) -> bool:
    """Its texts were cut before it was published, or it was written to show this very thing."""
    return "edited" in path.stem or path.parent.name == "result_disagrees"


def _result_of(data: bytes) -> str | None:
    for record in laws.records_of(data):
        if record.get("type") == "result" and not record.get("is_error"):
            return whole(record["result"])
    return None
