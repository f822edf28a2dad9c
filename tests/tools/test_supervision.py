"""What ends is started again, later each time; without supervision it stays dead."""

import asyncio

from tools.cluster.supervision import Supervised, Supervisor


class Process:
    def __init__(self) -> None:
        self.end = ""
        self.starts = 0
        self.error: Exception | None = None

    def how_ended(self) -> str:
        return self.end

    def start(self) -> None:
        self.starts += 1
        if self.error is not None:
            raise self.error
        self.end = ""


def watched(process: Process, times: list[float], *, restarts: bool = True) -> list[str]:
    """What was said in these looks, at the end of each of which the process has ended again."""
    said: list[str] = []
    supervisor = Supervisor([Supervised("one", process.how_ended, process.start)], said.append, restarts=restarts)

    async def live() -> None:
        for now in times:
            await supervisor.look(now)

    asyncio.run(live())
    return said


def test_it_is_started_again_after_a_second() -> None:
    process = Process()
    process.end = "was ended by signal 9"
    assert watched(process, [100.0, 100.5, 101.0, 101.5]) == [
        "one was ended by signal 9; it is started again in 1 s.",
        "one was started again.",
    ]
    assert process.starts == 1


def test_what_cannot_be_started_is_tried_later_each_time() -> None:
    process = Process()
    process.end, process.error = "ended with status 2", RuntimeError("no database")
    said = watched(process, [float(now) for now in range(100, 210)])
    waits = [line.rpartition("in ")[2] for line in said if "started again in" in line]
    assert waits == ["1 s.", "2 s.", "4 s.", "8 s.", "16 s.", "30 s.", "30 s.", "30 s."]
    assert "one cannot be started: no database" in said


def test_what_has_run_for_a_while_is_started_at_once_again() -> None:
    process, said = Process(), list[str]()
    supervisor = Supervisor([Supervised("one", process.how_ended, process.start)], said.append)

    async def live() -> None:
        for at in (100.0, 200.0):
            process.end = "ended with status 1"
            for now in (at, at + 1.0, at + 2.0, at + 30.0):
                await supervisor.look(now)

    asyncio.run(live())
    assert [line for line in said if "in 1 s" in line] == ["one ended with status 1; it is started again in 1 s."] * 2


def test_without_supervision_it_is_said_once_and_stays_dead() -> None:
    process = Process()
    process.end = "was ended by signal 9"
    assert watched(process, [1.0, 2.0, 3.0], restarts=False) == ["one was ended by signal 9, and stays dead."]
    assert process.starts == 0
