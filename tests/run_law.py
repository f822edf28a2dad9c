"""The law of runs, checked while all other tests run: after every append, the fold of the log is the live state.

Three things know a run while it is driven: its `RunState`, its assembler, and its open calls. The state must be that of
another fold, of the same events as the store would return them; the assembler must have the same documents open and the
same counts, and a pause must list the calls that can be answered. So whatever is asked of the state, here or in another
process, is asked of the run.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cursor_gateway.model.document_events import DocumentEvent
    from cursor_gateway.runs.log import LiveLog
    from cursor_gateway.runs.machine import RunMachine
    from cursor_gateway.runs.run import Run
    from cursor_gateway.stages.assembler import Assembler
    from cursor_gateway.stages.run_state import RunState

_ALWAYS = (
    64  # events, up to which every append is compared; then when there are twice as many, at pauses, and at the end
)
_LARGE = 1_000_000  # bytes of a batch: a test of such sizes measures something else

_replaced: list[tuple[type, str, Any]] = []


def install() -> None:
    """Wraps the log and the run; once, and only if they are loaded."""
    if _replaced or "cursor_gateway.runs.run" not in sys.modules:
        return
    from cursor_gateway.runs.log import LiveLog
    from cursor_gateway.runs.run import Run

    add, begin = LiveLog.add, Run.__init__

    def checked_add(log: "LiveLog", events: "Sequence[DocumentEvent]") -> None:
        follower = _follower(log)
        add(log, events)
        follower.follow(log.state, events)

    def checked_begin(run: "Run", *arguments: Any, **options: Any) -> None:
        begin(run, *arguments, **options)
        _follower(run.log).machine = run.machine

    _replaced.extend([(LiveLog, "add", add), (Run, "__init__", begin)])
    for (owner, name, _), checked in zip(_replaced, (checked_add, checked_begin), strict=True):
        setattr(owner, name, checked)


@contextmanager
def suspended() -> Iterator[None]:
    """For a test that counts what a run costs."""
    for owner, name, original in _replaced:
        setattr(owner, name, original)
    _replaced.clear()
    try:
        yield
    finally:
        install()


def _follower(log: "LiveLog") -> "Follower":
    follower: Follower | None = log.__dict__.get("follower")
    if follower is None:
        follower = log.__dict__["follower"] = Follower(log.state)
    return follower


class Follower:
    """One log's."""

    def __init__(self, state: "RunState") -> None:
        self.machine: RunMachine | None = None
        self._state = deepcopy(state)  # of a run that another process began: as it was stored
        self._compared_at = 0
        self._is_over = False

    def follow(self, state: "RunState", events: "Sequence[DocumentEvent]") -> None:
        from cursor_gateway.store.batches import decode, encode

        if self._is_over or not events:
            return
        stored = b""
        with suppress(UnicodeEncodeError):  # tests of the log alone; no source has such text
            stored = encode(events)
        if not 0 < len(stored) <= _LARGE:
            self._is_over = True
            return
        self._state.push_all(decode(stored))
        count = self._state.count
        is_due = count <= _ALWAYS or count >= 2 * self._compared_at or self._state.paused_at == count
        if is_due or self._state.done is not None:
            self._compared_at = count
            self._is_over = True  # unless it holds: a run reports its failure once
            assert state == self._state, "the log does not fold to the state"
            if self.machine is not None and self._state.done is None:
                _agrees(self.machine._assembler, state)
                _can_be_answered(self.machine, events[-1])
            self._is_over = False


def _agrees(assembler: "Assembler", state: "RunState") -> None:
    prose = assembler._prose
    assert {tool.id for tool in assembler._tools.values()} | ({prose.id} if prose is not None else set()) == set(
        state.open
    )
    assert prose is None or "".join(prose.pieces) == "".join(state.open[prose.id].pieces)
    assert (assembler._sequence, assembler._tool_call_count, assembler._refused) == (
        state.sequence,
        state.tool_calls,
        state.refused,
    )


def _can_be_answered(machine: "RunMachine", last: "DocumentEvent") -> None:
    from cursor_gateway.model.document_events import Paused

    if machine.caller is not None and isinstance(last, Paused):
        waiting = last.envelope.metadata.waiting_for or ()
        assert {call.tool_call_id for call in waiting} == set(machine.calls.shown)
