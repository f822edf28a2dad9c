"""What holds for every test: the examples that Hypothesis makes, how its children start and end, and which are slow.

Generated examples are the same in every run: a red build can be repeated. `make test` makes fewer of them
(the profile `quick`), `make test-all` all (`thorough`).
"""

import asyncio
import atexit
import gc
import itertools
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol  # which has no public name; other plugins import it from here, too
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers  # there is no public name

from cursor_gateway.server import logs
from tests import run_law
from tests.postgres import Databases, databases
from tests.preloaded import Forks, forks

pytest.register_assert_rewrite("tests.store.conformance")

_MEMORY = Path("/dev/shm")  # a file system in memory: a tenth of the CPU time goes into files otherwise
_QUICK_SECONDS = 0.01  # which `--durations` need not show

settings.register_profile(
    "thorough",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],  # a clock, too
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=10)
settings.load_profile("quick")
# Hypothesis also tries constants that it reads in the source of every module that is loaded. Which ones depends on
# the tests that ran before in the same worker, and reading them takes seconds.
providers._get_local_constants = lambda: providers._local_constants


def pytest_configure() -> None:
    """Let children start with the default signal dispositions, also under `nohup` and in a shell's background.

    A signal that is ignored stays ignored in a child; one that is handled has its default action there.
    """
    if "TMPDIR" not in os.environ and _is_usable_memory(_MEMORY):
        tempfile.tempdir = str(_MEMORY)  # the folders of tests are made in it, and PostgreSQL's
    runtime = tempfile.mkdtemp(prefix="gateways-")  # without the gateways of other workers, and of the user
    atexit.register(shutil.rmtree, runtime, ignore_errors=True)
    os.environ["CURSOR_GATEWAY_RUNTIME_DIR"] = runtime
    gc.disable()  # until the tests are collected: what is made before that stays
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each core: many tests wait for other processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * cores


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker start with different modules, so that in a new clone each compiles only a part of them."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    files = [file for file in sorted(Path("tests").rglob("test_*.py")) if "clients" not in file.parts]
    for file in files[number::count]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            import_module(".".join(file.with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all cases of a test with `quick_cases(n)` but n of them, evenly spread."""
    counted = [item for item in items if item.get_closest_marker("quick_cases")]
    for _, group in itertools.groupby(sorted(counted, key=_test_of), _test_of):
        cases = list(group)
        marker = cases[0].get_closest_marker("quick_cases")
        assert marker is not None
        (number,) = marker.args
        kept = {index * len(cases) // number for index in range(number)}
        for index, case in enumerate(cases):
            if index not in kept:
                case.add_marker("slow")


def pytest_collection_finish() -> None:
    """Thousands of tests stay in memory to the end: the garbage collector need not look at them each time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a worker: as pytest's own, without reports of a quick set-up or tear-down that went well.

    They would be two of three reports, and each is written by a worker, and read and counted by one process for all.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > _QUICK_SECONDS:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own; its parameter `loop` may say how it is run."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    run: Any = pyfuncitem.funcargs.get("loop", asyncio.run)
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


_shared = Forks()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """One process for all workers from which others are forked. It imports while they collect."""
    node.workerinput["forks"] = _shared.address()


def pytest_unconfigure() -> None:
    _shared.end()


@pytest.fixture(scope="package", autouse=True)
def _law_of_runs() -> None:
    run_law.install()


@pytest.fixture(scope="session", autouse=True)
def _forked_gateways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Gateways and commands need not import anything: they are forked from a process that has done so."""
    forks.append(Forks(getattr(request.config, "workerinput", {}).get("forks", "")))
    yield
    forks.pop().end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Databases]:
    """A PostgreSQL server, started for the first test that needs it."""
    with databases() as server:
        yield server


@pytest.fixture
def database(postgres: Databases) -> Iterator[str]:
    """The URL of a new history."""
    with postgres.history() as url:
        yield url


@pytest.fixture(autouse=True)
def _same_log() -> Iterator[None]:
    """A test that configures the log, or runs a command in this process that does, leaves it as it was."""
    ours, lines, trace_ids = logging.getLogger("cursor_gateway"), logs._lines, logs._trace_ids
    handlers, level, our_level = logging.root.handlers[:], logging.root.level, ours.level
    yield
    if logs._lines is lines and logs._trace_ids is trace_ids:
        return
    for handler in logging.root.handlers:
        if handler not in handlers:
            handler.close()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    ours.setLevel(our_level)
    logs._lines, logs._trace_ids = lines, trace_ids


@pytest.fixture(autouse=True)
def _kill_what_works_in_the_tests_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    newest = _newest_process() if folder is not None else ""
    yield
    if folder is not None and (newest != _newest_process() or not newest):  # most tests start no process
        for pid in _working_in(folder):
            _kill(pid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Kill the children that are left when all fixtures have ended theirs; not the workers of this run."""
    if not session.config.getoption("numprocesses", None):
        for pid in _children():
            _kill(pid)


def _is_usable_memory(folder: Path) -> bool:
    """Whether all files of all tests fit into it, and programs in it can be run: in containers, neither is usual."""
    if not folder.is_mount() or not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize > 4 << 30


def _children() -> set[int]:
    """The living children of this process; none where there is no /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there are none, which is quickly known
        return set()
    found = set()
    for pid in _processes():
        with suppress(OSError):
            state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state not in "ZX":
                found.add(pid)
    return found


def _working_in(folder: Path) -> list[int]:
    found = []
    for pid in _processes():
        with suppress(OSError):
            at = os.readlink(f"/proc/{pid}/cwd")
            if (at == str(folder) or at.startswith(f"{folder}/")) and pid != os.getpid():
                found.append(pid)
    return found


def _newest_process() -> str:
    """The id that the system has given last, to a process or a thread; nothing where it does not say."""
    try:
        return Path("/proc/loadavg").read_text().split()[-1]
    except OSError:
        return ""


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc") else []


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
