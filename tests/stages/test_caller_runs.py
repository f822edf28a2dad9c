"""A caller sees paths relative to the agent's scratch folder, however they come."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model import agent_events
from cursor_gateway.model.documents import Diff, TodoChange
from cursor_gateway.stages.caller_runs import ScratchPaths

FOLDER = "/home/me/.local/conv_1/scratch"
SHOWN = {
    f"{FOLDER}/src/a.py": "src/a.py",
    f"{FOLDER}//a.py": "a.py",
    f"{FOLDER}/.env": ".env",
    f"{FOLDER}/*.py": "*.py",
    FOLDER: ".",
    f"{FOLDER}/": ".",
    f"cd {FOLDER} && ls {FOLDER}/src": "cd . && ls src",
    f"It is in {FOLDER}.": "It is in ..",
    f"'{FOLDER}'": "'.'",
    f"{FOLDER}-old/a": f"{FOLDER}-old/a",
    f"{FOLDER}2": f"{FOLDER}2",
    f"{FOLDER}.bak": f"{FOLDER}.bak",
    "/home/me/other": "/home/me/other",
    "": "",
}


def thought(events: list[agent_events.AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, agent_events.ThinkingDelta))


@pytest.mark.parametrize(("path", "shown"), SHOWN.items())
def test_paths_are_relative(path: str, shown: str) -> None:
    command = agent_events.Command(tool="x", command=path, working_directory=path, output=path)
    expected = agent_events.Command(tool="x", command=shown, working_directory=shown, output=shown)
    assert ScratchPaths(FOLDER).push(agent_events.ToolStarted("1", command)) == [
        agent_events.ToolStarted("1", expected)
    ]


def test_all_that_a_tool_says_is_relative() -> None:
    path = f"{FOLDER}/a"
    edit = agent_events.FileEdit(
        tool="x",
        path=path,
        operation="edit",
        content=path,
        diff=Diff(old_string=path, new_string="", start_line=1, end_line=1),
    )
    shown = agent_events.FileEdit(
        tool="x",
        path="a",
        operation="edit",
        content="a",
        diff=Diff(old_string="a", new_string="", start_line=1, end_line=1),
    )
    event = agent_events.ToolEnded(
        "1", edit, agent_events.Outcome(state="rejected", message=f"No: {path}"), payload={"path": path}
    )
    assert ScratchPaths(FOLDER).push(event) == [
        agent_events.ToolEnded(
            "1", shown, agent_events.Outcome(state="rejected", message="No: a"), payload={"path": path}
        )
    ]
    other = agent_events.OtherTool(tool="x", arguments={"paths": [path, 3, None]}, data={path: {"lines": [path]}})
    (found,) = ScratchPaths(FOLDER).push(agent_events.ToolStarted("1", other))
    shown_other = agent_events.OtherTool(tool="x", arguments={"paths": ["a", 3, None]}, data={"a": {"lines": ["a"]}})
    assert found == agent_events.ToolStarted("1", shown_other)
    deep: list[object] = [path]
    for _ in range(900):
        deep = [deep]
    (found,) = ScratchPaths(FOLDER).push(
        agent_events.ToolStarted("1", agent_events.OtherTool(tool="x", arguments={}, data=deep))
    )
    assert isinstance(found, agent_events.ToolStarted)
    assert FOLDER not in str(msgspec.json.encode(found.action))


def test_lists_of_what_a_tool_says_are_relative() -> None:
    todos = agent_events.TodoUpdate(tool="x", todos=[TodoChange(id="1", status="pending", content=f"Write {FOLDER}/a")])
    shown = agent_events.TodoUpdate(tool="x", todos=[TodoChange(id="1", status="pending", content="Write a")])
    assert ScratchPaths(FOLDER).push(agent_events.ToolStarted("1", todos)) == [agent_events.ToolStarted("1", shown)]


@pytest.mark.parametrize(("path", "shown"), SHOWN.items())
@given(data=st.data())
def test_thinking_is_relative_however_it_is_cut(path: str, shown: str, data: st.DataObject) -> None:
    text = f"I look at {path} now; {path}"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    paths = ScratchPaths(FOLDER)
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    events = [event for piece in pieces for event in paths.push(agent_events.ThinkingDelta(piece))]
    events += paths.push(agent_events.ThinkingEnded())
    assert thought(events) == f"I look at {shown} now; {shown}"
    assert events[-1] == agent_events.ThinkingEnded()


def test_thinking_that_has_nothing_of_the_path_is_not_held_back() -> None:
    paths = ScratchPaths(FOLDER)
    assert paths.push(agent_events.ThinkingDelta("Hm. ")) == [agent_events.ThinkingDelta("Hm. ")]
    assert paths.push(agent_events.ThinkingDelta("/home")) == []
    assert paths.push(agent_events.ThinkingDelta("work")) == [agent_events.ThinkingDelta("/homework")]
    assert paths.flush() == []


def test_without_a_folder_nothing_changes() -> None:
    event = agent_events.ToolStarted("1", agent_events.Command(tool="x", command="ls /"))
    assert ScratchPaths("").push(event) == [event]


def test_the_answer_is_left_as_it_is() -> None:
    said = agent_events.TextDelta(f"See {FOLDER}/a.")
    paths = ScratchPaths(FOLDER)
    paths.push(agent_events.ThinkingDelta("/"))
    assert paths.push(said) == [agent_events.ThinkingDelta("/"), said]


def test_live_output_is_left_out_where_paths_are_changed() -> None:
    output = agent_events.CommandOutput("1", FOLDER)
    assert ScratchPaths(FOLDER).push(output) == []
    assert ScratchPaths("").push(output) == [output]
