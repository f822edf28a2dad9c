"""The changed files of a conversation over HTTP: exact lists, patches, reverts, hunks and checkpoints."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import validate_error
from tests.server.conftest import http_client, unique
from tests.workspace.agent_trace import lines, valid_record


@pytest.fixture(scope="module")
def reverting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("reverting"), settings={"force": "true"}) as running:
        yield running


@pytest.fixture(scope="module")
def http(reverting: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(reverting) as client:
        yield client


@pytest.fixture
def folder(reverting: RunningGateway) -> Path:
    folder = reverting.workspace / unique()
    folder.mkdir()
    return folder


def edited(http: httpx2.Client, *files: tuple[Path, str], **more: str) -> dict[str, str]:
    """A run that writes these texts."""
    steps = [{"native": "edit", "args": {"path": str(path), "streamContent": text}} for path, text in files]
    reply = http.post("/v1/chat", json={"message": f"standin: program\n---\n{json.dumps(steps)}", **more})
    assert reply.status_code == 200, reply.text
    result: dict[str, str] = reply.json()
    return result


def revert(http: httpx2.Client, run: dict[str, str], **wanted: object) -> httpx2.Response:
    reply = http.post(f"/v1/conversations/{run['conversationId']}/revert", json=wanted)
    if reply.status_code != 200:
        validate_error(reply.content)
    return reply


def changes(http: httpx2.Client, run: dict[str, str], **query: str) -> list[dict[str, Any]]:
    reply = http.get(f"/v1/conversations/{run['conversationId']}/changes", params=query)
    assert reply.status_code == 200, reply.text
    files: list[dict[str, Any]] = reply.json()["files"]
    return files


def can_revert(http: httpx2.Client, run: dict[str, str]) -> list[bool]:
    return [file["canRevert"] for file in changes(http, run)]


def test_a_file_is_reverted_and_a_created_one_deleted(http: httpx2.Client, folder: Path) -> None:
    old, new = folder / "old.py", folder / "new.py"
    old.write_text("a\nb\nc\n")
    old.chmod(0o750)
    run = edited(http, (old, "a\nB\nc\n"), (new, "x\n"), (old, "a\nB\nC\n"))
    assert can_revert(http, run) == [True, True]
    reply = revert(http, run, path=str(old)).json()
    assert [(file["path"], file["action"]) for file in reply["files"]] == [(f"{folder.name}/old.py", "restored")]
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("a\nb\nc\n", 0o750)
    assert [file["path"] for file in changes(http, run)] == [f"{folder.name}/new.py"]
    assert revert(http, run, path=str(new)).json()["files"][0]["action"] == "deleted"
    assert not new.exists()
    assert revert(http, run, path=str(new)).status_code == 404
    assert revert(http, run, undo=reply["undo"]).status_code == 200
    assert old.read_text() == "a\nB\nC\n"


def test_a_turn_is_reverted_and_the_one_before_stays(http: httpx2.Client, folder: Path) -> None:
    one, two = folder / "one.py", folder / "two.py"
    one.write_text("1\n")
    two.write_text("1\n")
    first = edited(http, (one, "2\n"), (two, "2\n"))
    second = edited(http, (one, "3\n"), (two, "3\n"), conversationId=first["conversationId"])
    assert len(revert(http, second, chatId=second["id"]).json()["files"]) == 2
    assert (one.read_text(), two.read_text()) == ("2\n", "2\n")
    assert revert(http, first, chatId=first["id"], path=str(one)).status_code == 200
    assert (one.read_text(), two.read_text()) == ("1\n", "2\n")


def test_later_changes_are_never_overwritten(http: httpx2.Client, folder: Path) -> None:
    mine, other = folder / "mine.py", folder / "other.py"
    mine.write_text("a\nb\n")
    other.write_text("a\n")
    run = edited(http, (other, "b\n"), (mine, "a\nB\n"))
    mine.write_text("a\nmine\n")
    refused = revert(http, run, chatId=run["id"])
    assert refused.status_code == 409
    assert "mine.py` was not reverted: it is no longer as the agent left it" in refused.json()["error"]["message"]
    assert (mine.read_text(), other.read_text()) == ("a\nmine\n", "b\n")  # nothing was written
    mine.unlink()
    assert "does not exist" in revert(http, run, path=str(mine)).json()["error"]["message"]


def test_links_and_other_folders_are_refused(http: httpx2.Client, reverting: RunningGateway, folder: Path) -> None:
    outside = reverting.home / unique()
    outside.mkdir()
    secret = outside / "a.py"
    secret.write_text("b\n")
    linked, behind, away = folder / "a.py", folder / "sub" / "a.py", outside / "c.py"
    behind.parent.mkdir()
    for path in (linked, behind, away):
        path.write_text("a\n")
    run = edited(http, (linked, "b\n"), (behind, "b\n"), (away, "b\n"))
    linked.unlink()
    linked.symlink_to(secret)
    os.rename(behind.parent, folder / "moved")
    behind.parent.symlink_to(outside)
    for refused in (str(linked), str(behind), str(away), f"{folder}/../{outside.name}/a.py"):
        assert revert(http, run, path=refused).status_code in (404, 409)
    assert (secret.read_text(), away.read_text()) == ("b\n", "b\n")
    assert can_revert(http, run) == [False, False, False]


def test_only_what_was_changed_in_this_conversation(http: httpx2.Client, folder: Path) -> None:
    run = edited(http, (folder / "a.py", "x\n"))
    assert revert(http, run).status_code == 400
    assert revert(http, run, path="b.py").status_code == 404
    assert revert(http, run, chatId="chat_none").status_code == 404
    assert revert(http, {"conversationId": "conv_none"}, path="a.py").status_code == 404
    assert revert(http, run, path="a.py", force=True).status_code == 400


def test_not_while_the_agent_works(http: httpx2.Client, folder: Path) -> None:
    run = edited(http, (folder / "a.py", "x\n"))
    body = {"message": "standin: hang-mid", "conversationId": run["conversationId"]}
    busy = http.post("/v1/chat", json=body, headers={"prefer": "respond-async"}).json()
    assert revert(http, run, path=str(folder / "a.py")).status_code == 409
    http.post(f"/v1/chat/{busy['id']}/cancel", json={})
    assert (folder / "a.py").exists()


# --- exactness --------------------------------------------------------------------------------------


def ran(http: httpx2.Client, command: str, **more: str) -> dict[str, str]:
    """A run that runs a command."""
    return programmed(http, {"native": "shell", "args": {"command": command}}, **more)


def programmed(http: httpx2.Client, *steps: dict[str, Any], **more: str) -> dict[str, str]:
    reply = http.post("/v1/chat", json={"message": f"standin: program\n---\n{json.dumps(steps)}", **more})
    assert reply.status_code == 200, reply.text
    result: dict[str, str] = reply.json()
    return result


BYTES = [
    b"alpha\nbeta\n",
    b"alpha\nbeta",
    b"alpha\r\nbeta\r\n",
    b"\xef\xbb\xbfalpha\nbeta\n",
    b"\xff\xfe alpha\nbeta\n",
    b"",
    b"\n\n",
    b"a\0b\n",
]


@pytest.mark.parametrize("before", BYTES)
def test_any_bytes_are_restored(http: httpx2.Client, folder: Path, before: bytes) -> None:
    file = folder / "text"
    file.write_bytes(before)
    run = ran(http, f"printf 'one more line\\n' >> {file}")
    assert file.read_bytes() == before + b"one more line\n"
    (change,) = changes(http, run)
    assert (change["isEdit"], change["canRevert"], change["operation"]) == (False, True, "edit")
    assert revert(http, run, path=change["path"]).status_code == 200
    assert file.read_bytes() == before


@pytest.fixture(scope="module")
def acp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("acp"), settings={"source": "acp"}) as running:
        yield running


def test_acp_edits_have_their_real_lines_and_are_reverted_exactly(acp: RunningGateway) -> None:
    """This protocol reports only the lines that changed, numbered from 1."""
    file = acp.workspace / "greek.txt"
    for before, after, line in (
        ("alpha\nbeta\n", "alpha\nbeta\none more line\n", 2),
        ("a\nb\nc\nd\n", "a\nb\nC\nd\n", 3),
        ("a\nb\nc", "a\nb\nc\n", 3),
    ):
        file.write_text(before)
        with http_client(acp) as http:
            run = edited(http, (file, after))
            (edit,) = [
                one for one in http.get(f"/v1/chat/{run['id']}").json()["documents"] if one["type"] == "file_edit"
            ]
            assert edit["metadata"]["diff"]["startLine"] == line
            assert edit["metadata"]["operation"] == "edit"
            (change,) = changes(http, run)
            assert change["hunks"][0]["newLines"] >= 1
            assert revert(http, run, chatId=run["id"]).status_code == 200
        assert file.read_text() == before


# --- checkpoints ------------------------------------------------------------------------------------


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_repository", [False, True])
def test_a_checkpoint_restores_what_edits_and_commands_changed(
    tmp_path_factory: pytest.TempPathFactory, is_repository: bool
) -> None:
    with (
        running_gateway(tmp_path_factory.mktemp("checkpoint"), settings={"force": "true"}) as gateway,
        http_client(gateway) as http,
    ):
        folder = gateway.workspace
        (folder / "src").mkdir()
        (folder / "src" / "a.py").write_text("a = 1\n")
        (folder / "b.txt").write_bytes(b"b\r\n")
        (folder / ".gitignore").write_text("*.log\n")
        (folder / ".env").write_text("SECRET=1\n")
        if is_repository:
            git(folder, "init", "-q")
            git(folder, "add", "-A")
            git(folder, "commit", "-qm", "first")
        before = everything(folder)
        first = ran(http, "rm b.txt && mkdir new && echo made > new/made.txt && echo noise > x.log && echo 2 > .env")
        after_first = everything(folder)
        second = programmed(
            http,
            {"native": "edit", "args": {"path": str(folder / "src/a.py"), "streamContent": "a = 2\n"}},
            {"native": "shell", "args": {"command": "echo more >> new/made.txt; chmod +x src/a.py"}},
            conversationId=first["conversationId"],
        )
        preview = revert(http, first, before=first["id"], preview=True).json()
        assert {file["path"]: file["action"] for file in preview["files"]} == {
            "b.txt": "restored",
            "new/made.txt": "deleted",
            "src/a.py": "restored",
        } | ({} if is_repository else {"x.log": "deleted"})
        assert "+++ b/src/a.py" in preview["patch"]
        assert everything(folder) != before  # it was only a preview
        reply = revert(http, first, before=first["id"], token=preview["token"]).json()
        restored = everything(folder)
        assert {
            name: data for name, data in restored.items() if name not in (".env", "x.log") and ".git/" not in name
        } == {name: data for name, data in before.items() if name != ".env" and ".git/" not in name}
        assert not (folder / "src/a.py").stat().st_mode & 0o100
        assert (folder / ".env").read_text() == "2\n"  # never read, never written
        assert revert(http, first, undo=reply["undo"]).status_code == 200
        assert (folder / "new/made.txt").read_text() == "made\nmore\n"
        assert (folder / "src/a.py").stat().st_mode & 0o100
        assert revert(http, first, before=second["id"]).status_code == 200
        assert {k: v for k, v in everything(folder).items() if ".git/" not in k} == {
            k: v for k, v in after_first.items() if ".git/" not in k
        }


def test_a_checkpoint_of_a_turn_that_changed_nothing_undoes_later_turns(http: httpx2.Client, folder: Path) -> None:
    first = ran(http, "true")
    assert revert(http, first, before=first["id"]).status_code == 404
    later = edited(http, (folder / "a", "1\n"), conversationId=first["conversationId"])
    assert revert(http, first, before=first["id"]).status_code == 200
    assert not (folder / "a").exists()
    assert later["conversationId"] == first["conversationId"]


def test_a_folder_in_the_place_of_a_file_and_the_other_way_round(http: httpx2.Client, folder: Path) -> None:
    (folder / "one").write_text("one\n")
    (folder / "two").mkdir()
    (folder / "two/below").write_text("below\n")
    before = everything(folder)
    run = ran(http, f"cd {folder} && rm -r one two && mkdir one && echo 1 > one/x && echo 2 > two")
    after = everything(folder)
    assert len(changes(http, run)) == 4
    preview = revert(http, run, chatId=run["id"], preview=True).json()
    done = revert(http, run, chatId=run["id"], token=preview["token"]).json()
    assert everything(folder) == before
    assert revert(http, run, undo=done["undo"]).status_code == 200
    assert everything(folder) == after


def test_a_file_in_the_place_of_a_link_is_not_reverted_to_nothing(http: httpx2.Client, folder: Path) -> None:
    (folder / "real").write_text("1\n")
    (folder / "link").symlink_to("real")
    (folder / "other").symlink_to("real")
    run = ran(http, f"cd {folder} && rm link other && echo 2 > link && ln -s nowhere other && ln -s real new")
    (change,) = changes(http, run)
    assert (Path(change["path"]).name, change["canRevert"]) == ("link", False)
    assert revert(http, run, path=change["path"]).status_code == 409
    assert (folder / "link").read_text() == "2\n"
    assert http.get(f"/v1/conversations/{run['conversationId']}/trace").status_code == 200


def test_what_a_preview_of_a_turn_skips_is_skipped(http: httpx2.Client, folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).write_text("1\n")
    run = ran(http, f"cd {folder} && echo 2 > two && rm one && ln -s two one")
    assert revert(http, run, chatId=run["id"]).status_code == 409
    preview = revert(http, run, chatId=run["id"], preview=True).json()
    done = revert(http, run, chatId=run["id"], token=preview["token"]).json()
    assert [file["action"] for file in preview["files"]] == [file["action"] for file in done["files"]]
    assert {Path(file["path"]).name: file["action"] for file in done["files"]} == {"one": "skipped", "two": "restored"}
    assert (folder / "one").is_symlink()
    assert (folder / "two").read_text() == "1\n"


def git(folder: Path, *words: str) -> str:
    words = ("-c", "user.name=A", "-c", "user.email=a@example.com", *words)
    done = subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True)
    return done.stdout


def test_a_file_that_a_person_changed_is_overwritten_only_after_a_preview_that_shows_it(
    http: httpx2.Client, folder: Path
) -> None:
    file = folder / "a.txt"
    file.write_text("1\n")
    run = ran(http, f"echo 2 > {file}")
    file.write_text("mine\n")
    assert revert(http, run, before=run["id"]).status_code == 409
    preview = revert(http, run, before=run["id"], preview=True).json()
    assert preview["files"][0]["isChangedSince"]
    assert "-mine" in preview["patch"]
    file.write_text("mine, again\n")
    assert revert(http, run, before=run["id"], token=preview["token"]).status_code == 409
    assert file.read_text() == "mine, again\n"
    token = revert(http, run, before=run["id"], preview=True).json()["token"]
    undo = revert(http, run, before=run["id"], token=token).json()["undo"]
    assert file.read_text() == "1\n"
    assert revert(http, run, undo=undo).status_code == 200
    assert file.read_text() == "mine, again\n"


def test_a_folder_that_is_too_large_is_said(http: httpx2.Client, reverting: RunningGateway, folder: Path) -> None:
    for number in range(20_001):
        (folder / f"{number}").touch()
    try:
        run = ran(http, f"echo 2 > {folder}/a.txt")
        reply = http.get(f"/v1/conversations/{run['conversationId']}/changes").json()
        assert reply["notes"] == ["The folder has more than 20,000 files."]
        assert revert(http, run, chatId=run["id"]).status_code == 404
    finally:
        shutil.rmtree(folder)


# --- hunks ------------------------------------------------------------------------------------------


def test_hunks_are_kept_and_undone_one_by_one(http: httpx2.Client, folder: Path) -> None:
    file = folder / "a.txt"
    lines = [f"{number}\n" for number in range(30)]
    file.write_text("".join(lines))
    new = [*lines]
    new[2], new[10], new[20] = "two\n", "ten\n", "twenty\n"
    run = edited(http, (file, "".join(new)))
    (change,) = changes(http, run)
    assert [hunk["oldStart"] for hunk in change["hunks"]] == [3, 11, 21]
    wrong = revert(http, run, path=change["path"], hunks=[1], version="0")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (409, "version")
    assert revert(http, run, path=change["path"], hunks=[1]).status_code == 400
    assert revert(http, run, path=change["path"], hunks=[1], version=change["version"]).status_code == 200
    assert file.read_text() == "".join([*new[:10], lines[10], *new[11:]])
    (change,) = changes(http, run)
    assert [hunk["oldStart"] for hunk in change["hunks"]] == [3, 21]
    keep = {"path": change["path"], "hunks": [0], "version": change["version"]}
    kept = http.post(f"/v1/conversations/{run['conversationId']}/keep", json=keep)
    assert kept.json() == {"files": [change["path"]]}
    (change,) = changes(http, run)
    assert [hunk["oldStart"] for hunk in change["hunks"]] == [21]
    assert revert(http, run, path=change["path"]).status_code == 200
    assert file.read_text() == "".join([*lines[:2], "two\n", *lines[3:]])
    (change,) = changes(http, run)
    assert change["isKept"]
    patch = http.get(f"/v1/conversations/{run['conversationId']}/changes", params={"dialect": "patch"}).text
    assert patch.count("@@ -") == 1


def test_everything_is_kept_and_later_changes_are_new(http: httpx2.Client, folder: Path) -> None:
    file = folder / "a.txt"
    run = edited(http, (file, "1\n"))
    assert http.post(f"/v1/conversations/{run['conversationId']}/keep", json={}).status_code == 200
    assert [change["isKept"] for change in changes(http, run)] == [True]
    assert http.post(f"/v1/conversations/{run['conversationId']}/keep", json={}).status_code == 404
    edited(http, (file, "1\n2\n"), conversationId=run["conversationId"])
    (change,) = changes(http, run)
    assert (change["added"], change["removed"], change["isKept"]) == (1, 0, False)
    assert revert(http, run, path=change["path"]).status_code == 200
    assert file.read_text() == "1\n"


def test_git_applies_the_patch_of_a_turn_and_of_the_conversation(
    http: httpx2.Client, folder: Path, tmp_path: Path
) -> None:
    (folder / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "old").write_bytes(b"\xffold\n")
    shutil.copytree(folder, tmp_path / folder.name)
    git(tmp_path, "init", "-q")
    first = ran(http, f"cd {folder} && printf 'three' >> a.txt && rm old && echo x > 'new file.txt'")
    middle = everything(folder)
    second = ran(http, f"cd {folder} && echo y >> 'new file.txt'", conversationId=first["conversationId"])
    url = f"/v1/conversations/{first['conversationId']}/changes"
    whole = http.get(url, params={"dialect": "patch"}).content
    for query, expected in (({"chatId": first["id"]}, middle), ({"chatId": second["id"]}, everything(folder))):
        patch = http.get(url, params={"dialect": "patch", **query})
        assert patch.headers["content-type"].startswith("text/x-diff")
        subprocess.run(["git", "-C", tmp_path, "apply", "-"], input=patch.content, check=True)
        assert everything(tmp_path / folder.name) == expected
    subprocess.run(["git", "-C", tmp_path, "apply", "-R", "-"], input=whole, check=True)
    assert everything(tmp_path / folder.name) == {"a.txt": b"one\r\ntwo\r\n", "old": b"\xffold\n"}
    one = http.get(url, params={"dialect": "patch", "path": f"{folder.name}/old"}).content
    assert one.count(b"diff --git") == 1
    assert http.get(url, params={"dialect": "patch", "context": "x"}).status_code == 400


# --- what is stored ---------------------------------------------------------------------------------


def test_contents_are_private_and_deleted_with_their_conversation(
    http: httpx2.Client, reverting: RunningGateway, folder: Path
) -> None:
    run = edited(http, (folder / "a.txt", "1\n"))
    changes(http, run)
    stored = reverting.home / "data" / "changes" / run["conversationId"]
    files = list(stored.iterdir())
    assert len(files) == 2
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert stored.stat().st_mode & 0o777 == 0o700
    assert http.delete(f"/v1/conversations/{run['conversationId']}").status_code in (202, 204)
    assert not stored.exists()


def test_a_run_that_only_reads_records_nothing(http: httpx2.Client, reverting: RunningGateway, folder: Path) -> None:
    (folder / "a.txt").write_text("1\n")
    run = programmed(http, {"native": "read", "args": {"path": str(folder / "a.txt")}})
    assert changes(http, run) == []
    assert not (reverting.home / "data" / "changes" / run["conversationId"]).exists()


def test_a_command_that_changes_no_file_records_nothing(http: httpx2.Client, reverting: RunningGateway) -> None:
    run = ran(http, "true")
    assert changes(http, run) == []
    assert not (reverting.home / "data" / "changes" / run["conversationId"]).exists()


def test_the_lines_of_a_patch_have_colours_and_are_only_text(http: httpx2.Client, folder: Path) -> None:
    file = folder / "a.py"
    file.write_text('x = 1\ns = """<b>\n</script>"""\n')
    run = edited(http, (file, 'x = 2\ns = """<b>\n<img src=x onerror=alert(1)>"""\n--x\n'))
    query = {"dialect": "colours", "path": f"{folder.name}/a.py", "context": "100"}
    url = f"/v1/conversations/{run['conversationId']}/changes"
    sides = http.get(url, params=query).json()
    shown = {side: [unescape(re.sub("</?span[^>]*>", "", line)) for line in sides[side]] for side in ("old", "new")}
    assert shown == {
        "old": ["x = 1", 's = """<b>', '</script>"""'],
        "new": ["x = 2", 's = """<b>', '<img src=x onerror=alert(1)>"""', "--x"],
    }
    for line in [*sides["old"], *sides["new"]]:
        assert line.count("<") == line.count("<span class=") + line.count("</span>")
        assert line.count("<span") == line.count("</span>")  # each line is whole by itself
    schemas = http.get("/openapi.json").json()["components"]["schemas"]
    assert set(schemas["ColouredLines"]["required"]) == sides.keys()


def test_lines_are_traced_to_the_runs_that_wrote_them(http: httpx2.Client, folder: Path) -> None:
    subprocess.run(["git", "init", "-q", folder], check=True)
    named = ["git", "-C", str(folder), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    (folder / "a.py").write_text("zero\n")
    subprocess.run([*named, "add", "."], check=True)
    subprocess.run([*named, "commit", "-qm", "First"], check=True)
    (folder / "src").mkdir()
    more = {"workspace": str(folder / "src")}
    first = edited(http, (folder / "src/a.py", "one\ntwo\n"), **more)
    second = edited(http, (folder / "src/a.py", "one\ntwo\nthree\n"), conversationId=first["conversationId"], **more)
    (folder / "src/a.py").write_text("mine\none\ntwo\nthree\n")
    reply = http.get(f"/v1/conversations/{first['conversationId']}/trace")
    assert reply.headers["content-type"] == "application/vnd.agent-trace.record+json"
    record = valid_record(reply.content)
    assert lines(record, "src/a.py") == {2: first["id"], 3: first["id"], 4: second["id"]}
    head = subprocess.run([*named, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert record["vcs"] == {"type": "git", "revision": head}
    (conversation, _) = record["files"][0]["conversations"]
    assert conversation["contributor"] == {"type": "ai", "model_id": "cursor/auto"}
    assert http.get(conversation["url"]).json()["id"] == first["conversationId"]
    assert http.get(conversation["related"][0]["url"]).json()["id"] == first["id"]
    assert http.get(f"/v1/conversations/{first['conversationId']}/trace").json() == record
    assert http.get("/v1/conversations/conv_nowhere/trace").status_code == 404


def test_without_snapshots_no_line_is_traced(tmp_path: Path) -> None:
    with running_gateway(tmp_path, settings={"snapshots": "false"}) as running, http_client(running) as client:
        run = client.post("/v1/chat", json={"message": "standin: text"}).json()
        refused = client.get(f"/v1/conversations/{run['conversationId']}/trace")
    assert refused.status_code == 404
    assert "snapshots" in refused.json()["error"]["message"]
