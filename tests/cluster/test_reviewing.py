"""What an agent changed is reviewed through any front: the runner that has the files does it."""

import subprocess
from pathlib import Path

from tests.cluster.conftest import cluster
from tests.postgres import Databases
from tests.server.conftest import chat, standin
from tests.workspace.agent_trace import lines, valid_record


def test_changes_are_listed_undone_kept_and_committed_through_a_front(tmp_path: Path, postgres: Databases) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git = ["git", "-C", str(work), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (work / "a.txt").write_text("one\ntwo\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "First"], check=True)
    with postgres.history() as url, cluster(tmp_path, url, runners=1) as running:
        first, second = running.clients
        asked = chat(first, standin("edit path=a.txt old=two new=three"))
        assert (work / "a.txt").read_text() == "one\nthree\n"
        place = f"/v1/conversations/{asked['conversationId']}"
        (file,) = second.get(f"{place}/changes").json()["files"]
        assert (file["path"], file["added"], file["removed"]) == ("a.txt", 1, 1)
        assert "+three" in second.get(f"{place}/changes", params={"dialect": "patch"}).text
        record = valid_record(second.get(f"{place}/trace").content)
        assert lines(record, "a.txt") == {2: asked["id"]}
        assert record["vcs"]["type"] == "git"
        preview = second.post(f"{place}/revert", json={"before": asked["id"], "preview": True}).json()
        undone = second.post(f"{place}/revert", json={"before": asked["id"], "token": preview["token"]})
        assert undone.status_code == 200
        assert (work / "a.txt").read_text() == "one\ntwo\n"
        assert first.post(f"{place}/revert", json={"undo": undone.json()["undo"]}).status_code == 200
        assert (work / "a.txt").read_text() == "one\nthree\n"
        proposal = first.post(f"{place}/commit", json={}).json()
        assert proposal["files"] == ["a.txt"]
        assert second.post(f"{place}/keep", json={"path": "a.txt"}).status_code == 200
        (work / "a.txt").write_text("somebody else\n")
        assert first.post(f"{place}/revert", json={"before": asked["id"]}).status_code == 409
