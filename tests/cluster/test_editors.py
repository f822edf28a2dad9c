"""Editors of two people's machines at two fronts of a cluster: one history, and the same runs."""

from pathlib import Path
from threading import Event

from tests.acp_server.editor import Answer, Asked, acp_editor, allow
from tests.cluster.conftest import Cluster
from tests.server.conftest import eventually, unique


def environment(home: Path) -> dict[str, str]:
    """Of a machine that has no gateway of its own, and trusts the one that it is told."""
    return {"HOME": str(home), "CURSOR_GATEWAY_DATA_DIR": str(home / "data"), "CURSOR_GATEWAY_VERIFY_GATEWAY": "false"}


def test_an_editor_at_another_front_continues_a_session_and_answers_its_run(
    tmp_path: Path, two_by_two: Cluster
) -> None:
    mark = unique()
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    first, second = (front.url for front in two_by_two.fronts)
    with (
        acp_editor(here, environment(here), "--url", first) as one,
        acp_editor(there, environment(there), "--url", second) as two,
    ):
        session = one.new(here)
        assert one.prompt(session, f"{mark} Hello.")["stopReason"] == "end_turn"
        (listed,) = [
            entry for entry in two.request("session/list")["sessions"] if mark.lower() in entry["title"].lower()
        ]
        same = listed["sessionId"]
        answered = Event()

        def wait(asked: Asked) -> Answer:
            answered.wait(300)
            return {"outcome": {"outcome": "cancelled"}}

        one.decide = wait
        prompting = one.prompting(session, 'standin: shell command="expr 20 + 22"')
        eventually(lambda: one.asked)
        two.decide = allow("once")
        two.request("session/load", sessionId=same, cwd=str(there), mcpServers=[])
        assert prompting.result(300)["stopReason"] == "end_turn"
        answered.set()
        eventually(lambda: two.text(same) == one.text(session))
        assert "42" in one.text(session)
        assert two.prompt(same, "And now?")["stopReason"] == "end_turn"
    assert two_by_two.starts(mark) == 1
