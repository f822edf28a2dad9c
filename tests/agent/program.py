"""A program in; its steps carried out, and what is needed to go on with it after an end at any point, out.

Steps, with results numbered from 1 in the order of the program's calls:

    {"say": "text"}             $1, $2, …: the text of that result; $all: all, joined by ", "; $user: see below
    {"think": "text"}
    {"call": "tool", "args": {}}        of an MCP tool. If no server has it, `no tool NAME` is said, and is the result
    {"native": "shell", "args": {}}     of the agent's own: shell read ls grep glob edit write delete webFetch, with
                                the wire's names for the arguments. takes_ms=: how long it goes on before it ends
    {"parallel": [calls]}       all started first, then made at once; they end when they end
    {"pause_ms": 100}           is over if the agent is ended in it
    {"repeat": 3, "steps": []}
    {"list": true}              says what `tools/list` gave, as JSON
    {"crash": 3}                exits at once; a resumed turn goes on after it

Texts in arguments may hold $1 and the like, too. The text of a call that failed or was rejected is the reason. A
program that says nothing after its last call says "Results: $all".

An agent may be ended during a call, and the call's result given to the next. Then the program goes on after it, and
what was said before is not said again:

- in a resumed chat, if the prompt has no `standin:` line. The prompt's `result` sections are the results of the calls
  that were open. More of them than that replace the latest results: a call of the agent's own may be rejected here, and
  carried out by the caller all the same, even when the program has come to its end meanwhile. A prompt without such
  sections is itself the result of each open call.
- in a new chat, if `result` sections follow the program: they are the results of its first calls.

Sections are matched with calls by name and arguments where they can be, and by their order otherwise. A call of a
`parallel` that has no result even so is made again. What a `user` section says is $user from then on.
"""

import json
import re
import time
from _collections_abc import Iterator, Sequence  # without `collections`, which takes longer

from tests.agent.emitter import Record
from tests.agent.failures import Failure
from tests.agent.natives import NATIVES, Job, Outcome, native
from tests.agent.sections import Given, results_in, user_in
from tests.agent.turn import Turn, runs

TYPE_CHECKING = False  # as in `typing`, whose import would take a sixth of the program's time
if TYPE_CHECKING:
    from tests.agent.servers import Servers

_PLACE = re.compile(r"\$(\d+|all|user)")
_REST: Record = {"say": "Results: $all"}


@runs("program")
def program(turn: Turn) -> int | None:
    progress = _progress(turn)
    progress.keep(turn)
    turn.begin()
    player = Player(turn, progress)
    status = player.play()
    if status is None:
        turn.finish()
        player.close()
    return status


class Progress:
    """What is to be done, how far it came, and what the calls gave. `begun` is the last step that called anything."""

    def __init__(self, steps: list[Record]) -> None:
        self.steps = steps
        self.at = 0
        self.begun = 0
        self.rested = -1  # up to this step, pauses are over
        self.user = ""
        calls = [_calls(step) for step in steps]
        self.calls = [call for step in calls for call in step]
        starts = [sum(map(len, calls[:index])) for index in range(len(steps))]
        self._numbers = [range(start, start + len(step)) for start, step in zip(starts, calls, strict=True)]
        self.results: list[str | None] = [None] * len(self.calls)

    @classmethod
    def kept(cls, record: Record) -> "Progress":
        match record:
            case {
                "steps": list(steps),
                "at": int(at),
                "begun": int(begun),
                "results": list(results),
                "user": str(user),
            }:
                progress = cls(steps)
                progress.at, progress.begun, progress.results, progress.user = at, begun, results, user
                progress.rested = at
                return progress
            case _:
                raise Failure(f"standin: no program: {json.dumps(record)}", 64)

    def keep(self, turn: Turn) -> None:
        place: Record = {"at": self.at, "begun": self.begun, "finished": self.at == len(self.steps)}
        turn.program = {"steps": self.steps, **place, "results": list(self.results), "user": self.user}

    def open(self, index: int) -> list[int]:
        """The calls of a step that have no result."""
        return [number for number in self._numbers[index] if self.results[number] is None]

    def continue_with(self, prompt: str) -> None:
        """In the chat that knows the program."""
        self.user = user_in(prompt) or self.user
        made = self._numbers[self.begun].stop if self.steps else 0
        waiting = self.open(self.begun) if self.at == self.begun < len(self.steps) else []
        given = results_in(prompt) or [Given("", None, prompt) for _ in waiting]
        if given:
            latest = range(max(0, made - len(given)), made)
            self._take(waiting if len(given) <= len(waiting) else latest, given)
            self.at = self.begun

    def catch_up(self, prompt: str, after: int) -> None:
        """In a chat that knows nothing but the prompt."""
        self.user = user_in(prompt, after)
        given = results_in(prompt, after)
        for index, numbers in enumerate(self._numbers):
            if given and numbers:
                mine, given = given[: len(numbers)], given[len(numbers) :]
                self._take(numbers, mine)
                self.at = self.begun = index

    def _take(self, numbers: Sequence[int], given: list[Given]) -> None:
        left, waiting = list(given), list(numbers)
        for alike in (_same_call, _same_name, _anything):
            for number in list(waiting):
                call = self.filled(self.calls[number])
                found = next((one for one in left if alike(call, one)), None)
                if found is not None:
                    self.results[number] = found.text
                    left.remove(found)
                    waiting.remove(number)

    def fill(self, text: str) -> str:
        return _PLACE.sub(lambda found: self._value(found[1], found[0]), text)

    def filled(self, call: Record) -> Record:
        """The call with the texts that its arguments name."""
        return {**call, "args": self._filled(call.get("args", {}))}

    def _filled(self, value: object) -> object:
        match value:
            case str():
                return self.fill(value)
            case dict():
                return {name: self._filled(below) for name, below in value.items()}
            case list():
                return [self._filled(below) for below in value]
            case _:
                return value

    def _value(self, name: str, otherwise: str) -> str:
        if name == "user":
            return self.user
        if name == "all":
            return ", ".join(text for text in self.results if text is not None)
        number = int(name)
        text = self.results[number - 1] if 0 < number <= len(self.results) else None
        return otherwise if text is None else text


class Player:
    def __init__(self, turn: Turn, progress: Progress) -> None:
        self._turn = turn
        self._progress = progress
        self._known: Servers | None = None

    def play(self) -> int | None:
        """A status, if the program crashes."""
        progress = self._progress
        while progress.at < len(progress.steps):
            self._keep()
            match progress.steps[progress.at]:
                case {"say": str(text)}:
                    self._turn.say(progress.fill(text))
                case {"think": str(text)}:
                    self._turn.think(progress.fill(text))
                case {"pause_ms": int() | float() as milliseconds}:
                    time.sleep(milliseconds / 1000 if progress.at > progress.rested else 0)
                case {"list": _}:
                    self._turn.say(json.dumps(self._servers.tools(), ensure_ascii=False))
                case {"crash": int(status)}:
                    del progress.steps[progress.at]  # a resumed turn does not crash again
                    self._keep()
                    return status
                case step if self._own_step(step):
                    pass
                case _:
                    self._call()
            progress.at += 1
        progress.keep(self._turn)  # written when the turn finishes
        return None

    def _own_step(self, step: Record) -> bool:
        """Carries out a step that only this player knows; otherwise False."""
        return False

    def close(self) -> None:
        if self._known is not None:
            self._known.close()

    @property
    def _servers(self) -> "Servers":
        if self._known is None:
            from tests.agent.servers import Servers  # here, because the import of HTTP is slow

            self._known = Servers(self._turn)
        return self._known

    def _keep(self) -> None:
        self._progress.keep(self._turn)
        self._turn.save()

    def _call(self) -> None:
        progress, turn = self._progress, self._turn
        progress.begun = progress.at
        self._keep()
        jobs = {number: job for number in progress.open(progress.at) if (job := self._job(number)) is not None}
        for job in jobs.values():
            job.start(turn)
        for number, outcome in _carried_out(jobs, at_once=not turn.knobs.flag("mcp_sequential")):
            progress.results[number] = outcome.text
            self._keep()
            turn.end(jobs[number].call, outcome.result)

    def _job(self, number: int) -> Job | None:
        match self._progress.filled(self._progress.calls[number]):
            case {"native": str(tool), "args": dict(args), **more}:
                return _lasting(native(self._turn, tool, args), more.get("takes_ms", 0))
            case {"call": str(tool), "args": dict(args)}:
                from tests.agent.servers import NoTool

                try:
                    return self._servers.job(tool, args)
                except NoTool as missing:
                    self._progress.results[number] = str(missing)
                    self._turn.say(str(missing))
                    return None
            case call:
                raise AssertionError(call)


def _carried_out(jobs: dict[int, Job], *, at_once: bool) -> Iterator[tuple[int, Outcome]]:
    """In the order in which they end. The threads die with the process, which a signal ends at once."""
    if len(jobs) < 2 or not at_once:
        for number, job in jobs.items():
            yield number, job.work()
        return
    import threading  # here: most runs need neither
    from queue import SimpleQueue

    done: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()

    def carry_out(number: int) -> None:
        done.put((number, jobs[number].work()))

    for number in jobs:
        threading.Thread(target=carry_out, args=(number,), daemon=True).start()
    for _ in jobs:
        yield done.get()


def _lasting(job: Job, milliseconds: object) -> Job:
    work = job.work

    def last() -> Outcome:
        outcome = work()
        time.sleep(milliseconds / 1000 if isinstance(milliseconds, int | float) else 0)
        return outcome

    job.work = last
    return job


def _progress(turn: Turn, also: frozenset[str] = frozenset()) -> Progress:
    if turn.earlier_program is not None and not turn.request.end:
        progress = Progress.kept(turn.earlier_program)
        progress.continue_with(turn.prompt)
        return progress
    progress = Progress(steps_of(turn.request.body, also))
    progress.catch_up(turn.prompt, turn.request.end)
    return progress


def steps_of(body: str, also: frozenset[str] = frozenset()) -> list[Record]:
    """Whatever a client writes after the list is not part of it. `also` are steps that another player knows."""
    try:
        written, _ = json.JSONDecoder().raw_decode(body.lstrip())
    except ValueError as error:
        raise Failure(f"standin: the program is no JSON: {error}", 64) from None
    steps = [*_flat(written if isinstance(written, list) else [written], also)]
    last = max((index for index, step in enumerate(steps) if _calls(step)), default=len(steps))
    says = any("say" in step or "list" in step or "crash" in step for step in steps[last + 1 :])
    return steps if says or last == len(steps) else [*steps, _REST]


def _flat(steps: list[object], also: frozenset[str]) -> Iterator[Record]:
    for step in steps:
        match step:
            case {"repeat": int(times), "steps": list(below)}:
                for _ in range(times):
                    yield from _flat(below, also)
            case dict() if _is_step(step) or also & step.keys():
                yield step
            case _:
                raise Failure(f"standin: not a step of a program: {json.dumps(step)}", 64)


def _is_step(step: object) -> bool:
    match step:
        case {"parallel": list(calls)}:
            return all(_is_step(call) and _calls(call) for call in calls)
        case {"native": str(tool)}:
            return tool in NATIVES
        case {"say": str()} | {"think": str()} | {"call": str()}:
            return True
        case {"pause_ms": int() | float()} | {"list": True} | {"crash": int()}:
            return True
        case _:
            return False


def _calls(step: Record) -> list[Record]:
    match step:
        case {"parallel": list(calls)}:
            return calls
        case {"call": _} | {"native": _}:
            return [step]
        case _:
            return []


def _same_call(call: Record, given: Given) -> bool:
    return _same_name(call, given) and call["args"] == given.arguments


def _same_name(call: Record, given: Given) -> bool:
    return given.name in (call.get("call"), call.get("native"))


def _anything(call: Record, given: Given) -> bool:
    return True
