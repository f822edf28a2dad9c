"""While the database is locked, answers are stored in their files. When nothing can be stored at all, they come all the
same and say so. Nothing that was stored is lost, all that was said meanwhile is in the history as soon as it can be,
without a restart, and the operator is told."""

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.run_files import FOLDER
from tests.cli.processes import finished_process
from tests.gateways import RunningGateway, running_gateway
from tests.laws.folds import fold_documents, read_sse
from tests.server.conftest import Json, ask, chat, eventually, growing, http_client, sse, standin, text_of, unique
from tests.server.test_killed import kill
from tests.server.test_leaks import ended_agents


@contextmanager
def started(home: Path, **settings: str) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    with ended_agents(home), running_gateway(home, settings=settings) as gateway, http_client(gateway) as client:
        yield gateway, client


@contextmanager
def locked(data: Path) -> Iterator[sqlite3.Connection]:
    """By another process: this one."""
    with closing(sqlite3.connect(data / FILE, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield connection
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def unwritable_runs(data: Path) -> Iterator[None]:
    """For every user: no permission keeps root from writing."""
    folder, aside = data / FOLDER, data / "aside"
    folder.rename(aside)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


@contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    """With room for 3 MB."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    at.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(at)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def elsewhere(data: Path, other: Path) -> None:
    """What the agents need stands on another disk, so that only the history is hit."""
    for name in ("conversations", "instances"):
        (other / name).mkdir(parents=True)
        (data / name).symlink_to(other / name)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def is_unstored(answer: Json) -> bool:
    return answer["metadata"].get("stored") is False


def streamed(http: httpx2.Client, text: str, **fields: object) -> tuple[Json, bytes]:
    """The fold of a stream, and the stream."""
    reply = ask(http, "documents", text, stream=True, **fields)
    assert reply.status_code == 200, reply.text
    return fold_documents(read_sse(reply.content)), reply.content


def in_history(http: httpx2.Client, id: str) -> bool:
    listed = http.get("/v1/conversations", params={"limit": 100})
    return listed.status_code == 200 and id in {entry["id"] for entry in listed.json()["conversations"]}


def assert_answers_without_storing(http: httpx2.Client) -> list[tuple[Json, bytes]]:
    """In every form, and each can be looked at as long as nobody has forgotten it."""
    result = [streamed(http, f"{unique()} {standin(scenario)}") for scenario in ("tools", "fences")]
    for answer, body in result:
        assert answer["status"] == "completed"
        assert is_unstored(answer)
        assert http.get(f"/v1/chat/{answer['id']}").json() == answer
        assert http.get(f"/v1/chat/{answer['id']}/events").content == body
    whole = chat(http, f"{unique()} hello")
    assert is_unstored(whole)
    result.append((whole, http.get(f"/v1/chat/{whole['id']}/events").content))
    completion = ask(http, "openai", "hello")
    assert (completion.status_code, completion.json()["choices"][0]["finish_reason"]) == (200, "stop")
    return result


def assert_answers_into_files(http: httpx2.Client) -> list[tuple[Json, bytes]]:
    """Each is stored, and can be looked at; the history lists it when the database has it."""
    result = [streamed(http, f"{unique()} {standin(scenario)}") for scenario in ("tools", "fences")]
    for answer, body in result:
        assert (answer["status"], "stored" in answer["metadata"]) == ("completed", False)
        assert not in_history(http, answer["conversationId"])
        assert http.get(f"/v1/chat/{answer['id']}").json() == answer
        assert http.get(f"/v1/chat/{answer['id']}/events").content == body
    assert "stored" not in chat(http, f"{unique()} hello")["metadata"]
    completion = ask(http, "openai", "hello")
    assert (completion.status_code, completion.json()["choices"][0]["finish_reason"]) == (200, "stop")
    return result


def assert_stored_at_last(http: httpx2.Client, result: list[tuple[Json, bytes]]) -> None:
    for answer, body in result:
        eventually(partial(in_history, http, answer["conversationId"]))
        assert http.get(f"/v1/chat/{answer['id']}").json() == answer
        assert http.get(f"/v1/chat/{answer['id']}/events").content == body


def reports(gateway: RunningGateway) -> list[Json]:
    """What the log says of problems with the history, and of their ends."""
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    return [line for line in lines if line.get("logger") == "cursor_gateway.store.health"]


def assert_reported(gateway: RunningGateway, http: httpx2.Client, sentence: bytes, place: str = FILE) -> None:
    """To the operator: in the log, with the file or folder; in the metrics; and in `/health`, without it."""

    def is_logged() -> bool:
        found = [line for line in reports(gateway) if sentence.decode() in line["event"]]
        return any(str(gateway.data / place) in line["details"] for line in found)

    eventually(is_logged)
    metrics = http.get("/metrics").text
    assert "cursor_gateway_store_available 0.0" in metrics
    assert "cursor_gateway_store_errors_total 0.0" not in metrics
    health = http.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    assert sentence.decode() in health.json()["problem"]
    assert str(gateway.data) not in health.text


# --- locked -------------------------------------------------------------------------------------------------


def test_while_the_history_is_locked_answers_are_stored_in_files_and_moved_later(tmp_path: Path) -> None:
    with started(tmp_path) as (gateway, http):
        before, body = streamed(http, "hello")
        assert "stored" not in before["metadata"]
        eventually(lambda: in_history(http, before["conversationId"]))
        with locked(gateway.data):
            result = assert_answers_into_files(http)
            # Whether a conversation may go on is decided by the database.
            again = chat(http, standin("history"), conversationId=before["conversationId"])
            assert json.loads(text_of(again))["prompts"] == ["hello"]  # what can be read is read
            assert is_unstored(again)
            refused = http.delete(f"/v1/conversations/{before['conversationId']}")
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (503, "store_unavailable")
            assert "locked by another program" in error["message"]
            assert refused.headers["retry-after"] == "5"
        assert_stored_at_last(http, result)
        eventually(lambda: len(http.get(f"/v1/conversations/{before['conversationId']}").json()["messages"]) == 4)
        assert "stored" not in chat(http, "and now?")["metadata"]
    with started(tmp_path) as (_, http):
        assert_stored_at_last(http, [*result, (before, body)])


def test_a_lock_that_lasts_is_reported_although_every_answer_is_stored(tmp_path: Path) -> None:
    with started(tmp_path) as (gateway, http):
        assert in_history(http, chat(http, "hello")["conversationId"])
        with locked(gateway.data):
            answer, body = streamed(http, "hello")
            assert "stored" not in answer["metadata"]
            assert_reported(gateway, http, b"locked by another program")  # nobody asks for anything meanwhile
        eventually(lambda: http.get("/health").json()["status"] == "ok")
        eventually(lambda: reports(gateway)[-1]["event"] == "The history works again.")
        assert_stored_at_last(http, [(answer, body)])


def test_what_was_shown_during_a_lock_outlives_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "go"
    with (
        started(tmp_path / "home") as (gateway, http),
        growing(http, "documents", standin(f"wait-for file={file}")) as reply,
    ):
        reply.until(b"file.")
        id = reply.response.headers["x-chat-id"]
        with locked(gateway.data):
            file.touch()
            received = reply.rest()
            kill(gateway)
    answer = fold_documents(read_sse(received))
    assert (answer["status"], "stored" in answer["metadata"]) == ("completed", False)
    with started(tmp_path / "home") as (_, http):
        assert http.get(f"/v1/chat/{id}/events").content == received
        assert http.get(f"/v1/chat/{id}").json() == answer
        assert in_history(http, answer["conversationId"])


def test_a_history_that_is_locked_at_the_start_is_used_when_it_is_free(tmp_path: Path) -> None:
    """What the gateway before left unfinished is ended then, too."""
    with started(tmp_path) as (gateway, http):
        chat(http, "hello")
        with growing(http, "documents", standin("hang-mid")) as reply:
            received = bytes(reply.until(b"more"))
            id = reply.response.headers["x-chat-id"]
            kill(gateway)
    with locked(tmp_path / "data") as lock, started(tmp_path) as (gateway, http):
        eventually(lambda: b"locked by another program" in gateway.log.read_bytes())
        result = assert_answers_into_files(http)
        assert http.get(f"/v1/chat/{id}").status_code == 503  # it exists
        assert http.get("/v1/chat/chat_unknown").status_code == 404
        lock.execute("ROLLBACK")
        assert_stored_at_last(http, result)
        eventually(lambda: http.get(f"/v1/chat/{id}").json()["status"] == "error")
        assert http.get(f"/v1/chat/{id}/events").content.startswith(received)


@pytest.mark.parametrize("kind", ["a folder", "no permission"])
def test_a_history_that_cannot_be_opened_any_more_is_reported_and_used_again(tmp_path: Path, kind: str) -> None:
    with started(tmp_path) as (gateway, http):
        chat(http, "hello")
        file, aside = gateway.data / FILE, tmp_path / "aside"
        if kind == "a folder":
            file.rename(aside)
            file.mkdir()
        elif os.geteuid() == 0:
            pytest.skip("root may open every file")
        else:
            file.chmod(0)
        refused = http.get("/v1/conversations")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
        assert str(gateway.data) not in refused.text
        assert_reported(gateway, http, b"The history cannot be opened")
        if kind == "a folder":
            file.rmdir()
            aside.rename(file)
        else:
            file.chmod(0o600)
        # Nobody uses the history meanwhile.
        eventually(lambda: http.get("/health").json()["status"] == "ok")
        assert len(http.get("/v1/conversations").json()["conversations"]) == 1


# --- full ---------------------------------------------------------------------------------------------------


def test_a_full_disk_keeps_no_answer_back_and_loses_none(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data") as disk:
        elsewhere(disk, tmp_path / "other")
        with started(tmp_path) as (gateway, http):
            before, body = streamed(http, "hello")
            eventually(lambda: in_history(http, before["conversationId"]))
            assert http.get("/health").json()["status"] == "ok"
            ballast = fill(disk)
            result = assert_answers_without_storing(http)
            assert_reported(gateway, http, b"The disk with the history is full", FOLDER)
            assert http.get(f"/v1/chat/{before['id']}").json() == before
            listed = http.get("/v1/conversations")
            assert listed.status_code in (200, 503), listed.text
            ballast.unlink()
            assert_stored_at_last(http, result)
            assert "stored" not in chat(http, "and now?")["metadata"]
            eventually(lambda: http.get("/health").json()["status"] == "ok")
            eventually(lambda: reports(gateway)[-1]["event"] == "The history works again.")
        with started(tmp_path) as (_, http):
            assert_stored_at_last(http, [*result, (before, body)])


def test_where_not_even_the_agent_can_write_it_is_reported_and_works_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data") as disk, started(tmp_path) as (_, http):
        before = chat(http, "hello")
        ballast = fill(disk)
        failed = ask(http, "documents", "hello")
        assert failed.status_code >= 500, failed.text
        assert "No space left on device" in failed.text
        ballast.unlink()
        again = chat(http, standin("history"), conversationId=before["conversationId"])
        assert json.loads(text_of(again))["prompts"] == ["hello"]


# --- only to be read ----------------------------------------------------------------------------------------


def test_a_folder_that_can_only_be_read_costs_the_history_alone(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data") as disk:
        elsewhere(disk, tmp_path / "other")
        remount(disk, "ro")
        with started(tmp_path) as (gateway, http):
            eventually(lambda: b"Read-only file system" in gateway.log.read_bytes())
            result = assert_answers_without_storing(http)
            refused = http.get("/v1/conversations")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
            assert "Read-only file system" in refused.json()["error"]["message"]
            remount(disk, "rw")
            assert_stored_at_last(http, result)
            assert "stored" not in chat(http, "and now?")["metadata"]


def test_a_gateway_that_can_write_nowhere_says_so_and_does_not_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data") as disk:
        remount(disk, "ro")
        result = finished_process(
            "serve", "--port", "0", CURSOR_GATEWAY_DATA_DIR=str(disk), CURSOR_GATEWAY_SOURCE="replay"
        )
        assert result.returncode != 0
        assert b"cannot write to" in result.stderr
        assert b"data_dir" in result.stderr


def test_a_folder_of_runs_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    """The database works meanwhile, which is no reason to report that the history works."""
    with started(tmp_path) as (gateway, http):
        before, body = streamed(http, "hello")
        eventually(lambda: in_history(http, before["conversationId"]))
        with unwritable_runs(gateway.data):
            result = assert_answers_without_storing(http)
            assert_reported(gateway, http, b"The history cannot be written: Not a directory", FOLDER)
            assert in_history(http, before["conversationId"])
            again = chat(http, standin("history"), conversationId=before["conversationId"])
            assert is_unstored(again)
            assert http.get("/health").json()["status"] == "degraded"
        assert_stored_at_last(http, [*result, (before, body)])
        eventually(lambda: http.get("/health").json()["status"] == "ok")
        assert "stored" not in chat(http, "and now?")["metadata"]
    with started(tmp_path) as (_, http):
        assert_stored_at_last(http, [*result, (before, body)])


def test_streams_say_it_in_their_last_event(tmp_path: Path) -> None:
    with started(tmp_path) as (gateway, http):
        eventually(partial(in_history, http, chat(http, "hello")["conversationId"]))
        with unwritable_runs(gateway.data):
            reply = ask(http, "documents", "hello", stream=True)
            *events, done = sse(reply.content)
            assert (done.event, json.loads(done.data)["metadata"]["stored"]) == ("done", False)
            assert not any("stored" in event.data for event in events)
            lines = http.post(
                "/v1/chat", json={"message": "hello", "stream": True}, headers={"accept": "application/x-ndjson"}
            )
            assert json.loads(lines.content.splitlines()[-1])["data"]["metadata"]["stored"] is False
