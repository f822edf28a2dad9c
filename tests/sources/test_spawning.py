"""Starting processes: with `posix_spawn` in a thread, and with `Popen` where the C library cannot do all of it."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue

import pytest

from cursor_gateway.sources import spawning
from cursor_gateway.sources.processes import start_of
from cursor_gateway.sources.spawning import spawn

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(params=["in a thread", "at once", "Popen"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Popen":
        monkeypatch.setattr(spawning, "_library", lambda: None)
    elif spawning._library() is None:
        pytest.skip("this C library cannot do all that is needed")
    return str(request.param)


def output(
    way: str,
    script: str,
    *,
    program: str = "/bin/sh",
    environment: Mapping[str, str] = ENVIRONMENT,
    folder: str = "/usr",
) -> str:
    """Of a script, with what it writes to its standard error."""

    async def live() -> str:
        read_end, write_end = os.pipe()
        pid = await spawn(
            [program, "-c", script], folder, environment, (None, write_end, write_end), is_alone=way == "at once"
        )
        os.close(write_end)
        with open(read_end, encoding="utf-8") as pipe:
            text = await asyncio.to_thread(pipe.read)
        os.waitpid(pid, 0)
        return text

    return asyncio.run(live())


def test_a_process_has_the_folder_the_environment_and_the_files_that_were_given(way: str) -> None:
    script = "pwd; echo $SAID; read line || echo no input; echo error >&2"
    assert output(way, script, environment={**ENVIRONMENT, "SAID": "é"}) == "/usr\né\nno input\nerror\n"


def test_a_relative_path_never_leads_into_the_working_folder(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, text in (("here", "ours"), ("work", "theirs")):
        program = tmp_path / place / "bin" / "tool"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho {text}\n")
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path / "here")
    work = str(tmp_path / "work")
    for name, path in (("tool", "bin"), ("bin/tool", "/usr/bin"), ("./bin/tool", "/usr/bin")):
        assert output(way, "", program=name, environment={"PATH": path}, folder=work) == "ours\n"


def test_a_program_is_found_with_the_path_of_its_own_environment(way: str, tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    assert output(way, "", program="greet", environment={"PATH": str(tmp_path)}) == "hello\n"


def test_a_process_inherits_no_other_files(way: str) -> None:
    with open("/dev/null", "rb") as other:
        os.set_inheritable(other.fileno(), True)
        files = output(way, "cd /proc/self/fd && echo *").split()
        assert str(other.fileno()) not in files
    assert {"0", "1", "2"} <= set(files)


def test_a_process_leads_its_own_session(way: str) -> None:
    fields = output(way, "cat /proc/$$/stat").rpartition(")")[2].split()
    group, session = fields[2:4]
    assert group == session != str(os.getsid(0))


def test_a_process_ignores_and_blocks_no_signals(way: str) -> None:
    masks = dict(
        line.split(":\t") for line in output(way, "exec grep -E '^Sig(Blk|Ign)' /proc/self/status").splitlines()
    )
    assert int(masks["SigBlk"], 16) == 0
    assert not int(masks["SigIgn"], 16) >> (signal.SIGPIPE - 1) & 1


def test_the_standard_files_of_a_gateway_that_had_none_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving one of them to its place would overwrite another."""
    used: list[object] = []

    def noted(*arguments: object) -> int:
        used.append(arguments[-1])
        return 1

    monkeypatch.setattr(spawning, "_spawned_by_popen", noted)
    assert asyncio.run(spawn(["/bin/sh"], "/", ENVIRONMENT, (2, 5, 6))) == 1
    assert used == [(2, 5, 6)]


# --- threads --------------------------------------------------------------------------------------------


class Held:
    """Processes that are to be started, until the test starts them; and those that were ended at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if spawning._library() is None:
            pytest.skip("this C library cannot do all that is needed")
        self.ended: list[int | OSError] = []
        self._queue: SimpleQueue[spawning._Start] = SimpleQueue()
        end = spawning._end

        def noted(result: int | OSError) -> None:
            end(result)
            self.ended.append(result)

        monkeypatch.setattr(spawning, "_queue", lambda: self._queue)
        monkeypatch.setattr(spawning, "_end", noted)

    def start(self) -> None:
        self._queue.get(timeout=60).run()

    def assert_ended(self) -> None:
        (pid,) = self.ended
        assert isinstance(pid, int)
        assert start_of(pid) is None
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.fixture
def null() -> Iterator[int]:
    with open(os.devnull, "wb") as file:
        yield file.fileno()


async def hanging(null: int) -> int:
    return await spawn(["/bin/sleep", "600"], "/", ENVIRONMENT, (None, null, null))


async def test_whoever_is_cancelled_waits_for_the_start_and_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, null: int
) -> None:
    held = Held(monkeypatch)
    starting = asyncio.ensure_future(hanging(null))
    for _ in range(3):  # however often
        await asyncio.sleep(0)
        starting.cancel()
    await asyncio.sleep(0)
    assert not starting.done()
    held.start()
    await asyncio.wait([starting])
    assert starting.cancelled()
    held.assert_ended()


def test_a_process_that_starts_after_the_loop_was_closed_is_ended(monkeypatch: pytest.MonkeyPatch, null: int) -> None:
    held = Held(monkeypatch)
    loop = asyncio.new_event_loop()
    starting = loop.create_task(hanging(null))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    held.start()
    held.assert_ended()
    starting._log_destroy_pending = False  # type: ignore[attr-defined] # its loop is closed: it cannot end


async def test_the_loop_goes_on_while_a_process_starts(monkeypatch: pytest.MonkeyPatch, null: int) -> None:
    library, go_on = spawning._library(), threading.Event()
    if library is None:
        pytest.skip("this C library cannot do all that is needed")

    class Waiting:
        """Starts a process when the loop lets it."""

        def posix_spawn(self, *arguments: object) -> object:
            assert go_on.wait(60)
            assert library is not None
            return library.waiting.posix_spawn(*arguments)

    slow = spawning._Library(library.quick, Waiting(), library.attributes)  # type: ignore[arg-type]
    monkeypatch.setattr(spawning, "_library", lambda: slow)
    starting = asyncio.ensure_future(hanging(null))
    asyncio.get_running_loop().call_later(0.01, go_on.set)
    pid = await starting
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_forked_process_starts_threads_of_its_own() -> None:
    async def live() -> int:
        read_end, write_end = os.pipe()
        pid = await spawn(["/bin/true"], "/", ENVIRONMENT, (None, write_end, write_end))
        os.close(read_end)
        os.close(write_end)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert asyncio.run(live()) == 0
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(asyncio.run(live()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_a_thread_survives_what_it_cannot_report(monkeypatch: pytest.MonkeyPatch, null: int) -> None:
    """Or no process could be started any more."""
    if spawning._library() is None:
        pytest.skip("this C library cannot do all that is needed")

    def no_memory(start: object) -> int:
        raise MemoryError

    for _ in range(2 * spawning._THREADS):
        with monkeypatch.context() as patched:
            patched.setattr(spawning._Start, "_started", no_memory)
            with pytest.raises(MemoryError):
                await hanging(null)
    pid = await hanging(null)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_one_thread_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    spawning._queue.__wrapped__()
    assert len(started) == 1


def test_what_cannot_be_found_or_used_is_reported_as_popen_does(way: str, tmp_path: Path, null: int) -> None:
    (tmp_path / "greet").write_text("#!/bin/sh\n")
    (tmp_path / "greet").chmod(0o755)

    def error(program: str, folder: str, **environment: str) -> tuple[type[BaseException], object]:
        with pytest.raises((OSError, ValueError)) as caught:
            asyncio.run(
                spawn([program], folder, {**ENVIRONMENT, **environment}, (None, null, null), is_alone=way == "at once")
            )
        return caught.type, getattr(caught.value, "filename", None)

    assert error("greet", str(tmp_path)) == (FileNotFoundError, "greet")  # not from the working folder
    assert error("/bin/true", str(tmp_path / "greet")) == (NotADirectoryError, str(tmp_path / "greet"))
    assert error("/bin/true", "/", **{"A=B": "C"}) == (ValueError, None)
