"""The events of a run's agent in; exact edits, and what its turn changed, in the conversation's log of changes, out.

When a turn begins, a tree of its workspace is made; when it ends, another, and the difference is recorded. A small
folder is looked at in less time than a thread takes to begin, others in threads. The agent waits for the first tree,
and its reader for the second, only for a moment: a folder of usual size is looked at faster than that, and in a large
one a file that was changed meanwhile is known not to be what it was when the turn began, or ended (`tree.scan`).

Trees are kept in memory, per workspace, so that most files are read once. Turns that begin at the same time share one.
That of a turn which may change files is in a file as well, until the turn is recorded (`unfinished`).
"""

import asyncio
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress

from msgspec.structs import replace

from cursor_gateway.errors import GatewayError
from cursor_gateway.model import agent_events
from cursor_gateway.stages.diffs import line_diff
from cursor_gateway.workspace.beneath import PathRefused, is_there, path_below, read_below
from cursor_gateway.workspace.change_log import ChangeLog, FileStep, FileVersion, TurnStep, is_same, version_of
from cursor_gateway.workspace.tree import (
    COARSE_NS,
    MOST_FILE_BYTES,
    Tree,
    TreeEntry,
    TurnName,
    UnfinishedTurns,
    is_secret,
    scan,
)

_QUICK_SECONDS = 0.002  # of CPU time that a folder took: then it is looked at in the event loop
_STOP_SECONDS = 0.005  # unless it takes longer than this twice in a row, because it has grown, or its disk is slow:
_SLOW_SECONDS = 0.02  # then it is looked at in threads for a while, twice as long each time:
_SLOWEST_SECONDS = 60.0  # a busy machine may have delayed it once, a slow disk does so again
_BEGIN_SECONDS = 0.03  # that an agent waits for the tree before it
_DONE_SECONDS = 0.3  # that the end of an answer waits for the tree after it
_EDIT_SECONDS = 0.25  # that an edit waits for the file to be read
_END_SECONDS = 20.0  # that a reader waits for the tree after a turn
_MOST_TREES = 8
_MOST_FILES = 5_000  # that a turn's record has
_READERS = frozenset(
    {"read_file", "grep", "glob_file_search", "list_dir", "codebase_search", "read_lints", "todo_read", "reflect"}
    | {"web_search", "web_fetch", "fetch", "exa_search", "exa_fetch", "switch_mode"}
    | {"list_mcp_resources", "read_mcp_resource", "get_mcp_tools"}
)  # tools that change no files


_WATCHED: frozenset[type] = frozenset(
    {
        agent_events.RunStarted,
        agent_events.ToolStarted,
        agent_events.ToolEnded,
        agent_events.RunFinished,
        agent_events.RunFailed,
    }
)


class Snapshots:
    def __init__(self, data: str, instance: str = "alone") -> None:
        """`data` is the gateway's data directory, `instance` the name of this gateway among those that share it."""
        self._data = data
        self.unfinished = UnfinishedTurns(data, instance)
        self._trees: OrderedDict[str, Tree] = OrderedDict()  # the last one of each workspace
        self._slow: dict[str, tuple[float, float]] = {}  # workspaces that took long, for how long and until when
        self._scans: dict[str, asyncio.Task[Tree]] = {}  # trees before turns that are being made
        self._ending: dict[str, asyncio.Task[None]] = {}  # turns whose trees after them are being made
        self._recovering: asyncio.Task[None] | None = None

    def turn(self, conversation_id: str, chat_id: str, workspace: str) -> "TurnSnapshots":
        return TurnSnapshots(self, conversation_id, chat_id, workspace)

    def log(self, conversation_id: str) -> ChangeLog:
        return ChangeLog(self._data, conversation_id)

    def recover(self, is_alive: Callable[[str], bool]) -> None:
        """Records, in the background, the turns of gateways that are dead. Their agents must have been ended."""
        self._recovering = asyncio.get_running_loop().create_task(self._recover(is_alive), name="snapshots")

    async def _recover(self, is_alive: Callable[[str], bool]) -> None:
        cut_off: list[tuple[TurnName, Tree]] = []
        with suppress(OSError):
            cut_off = await asyncio.to_thread(self.unfinished.cut_off, is_alive)
        for turn, old in cut_off:
            with suppress(OSError, GatewayError):
                new = await asyncio.to_thread(scan, old.root)
                if self.unfinished.has(turn, old):  # else the conversation was deleted meanwhile
                    await asyncio.to_thread(_record, self.log(turn.conversation_id), turn.chat_id, old, new, {})
            self.unfinished.ended(turn, old)

    async def settled(self, conversation_id: str) -> None:
        """Waits until what its last turn changed is recorded."""
        tasks = [task for task in (self._recovering, self._ending.get(conversation_id)) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)

    def scan_before(self, workspace: str) -> "Tree | asyncio.Task[Tree]":
        at_ns = time.time_ns()
        task = self._scans.get(workspace)
        if task is None:
            if (tree := self._scan_now(workspace, at_ns)) is not None:
                return tree
            task = asyncio.get_running_loop().create_task(self._scan(workspace, at_ns), name="snapshot")
            self._scans[workspace] = task
            task.add_done_callback(lambda _: self._scans.pop(workspace, None))
        return task

    def _scan_now(self, workspace: str, at_ns: int) -> Tree | None:
        """None if a scan may take long."""
        known = self._trees.get(workspace)
        if known is None or known.problem or known.cpu_seconds > _QUICK_SECONDS:
            return None
        until = time.monotonic() + _STOP_SECONDS
        seconds, slow_until = self._slow.get(workspace, (0.0, 0.0))
        if until < slow_until:
            return None
        try:
            tree = scan(workspace, known, at_ns, lambda: time.monotonic() > until)
        except Exception:  # noqa: BLE001 -- whatever is wrong with the folder, the run continues
            tree = Tree(workspace, {}, problem="It cannot be looked at.")
        if time.monotonic() <= until:
            self._slow.pop(workspace, None)
        else:
            self._slow[workspace] = min(max(2 * seconds, _SLOW_SECONDS), _SLOWEST_SECONDS), until + seconds
        return self._keep(workspace, tree) if not tree.problem else None

    async def _scan(self, workspace: str, at_ns: int) -> Tree:
        return self._keep(workspace, await asyncio.to_thread(scan, workspace, self._trees.get(workspace), at_ns))

    def _keep(self, workspace: str, tree: Tree) -> Tree:
        self._trees[workspace] = tree
        self._trees.move_to_end(workspace)
        while len(self._trees) > _MOST_TREES:
            self._slow.pop(self._trees.popitem(last=False)[0], None)
        return tree

    def end(self, turn: "TurnSnapshots", old: "Tree | asyncio.Task[Tree]") -> "asyncio.Task[None] | None":
        """The turn has ended; what it changed is recorded in the background. None: it has changed nothing."""
        before, at_ns = self._ending.get(turn.conversation_id), time.time_ns()
        new = self._scan_now(turn.workspace, at_ns) if before is None and isinstance(old, Tree) else None
        if isinstance(old, Tree) and new is not None and new.entries == old.entries and not turn.edited:
            turn.forget(old)
            return None
        task = asyncio.get_running_loop().create_task(self._record(turn, before, new, at_ns), name="snapshot")
        self._ending[turn.conversation_id] = task

        def done(task: "asyncio.Task[None]") -> None:
            if self._ending.get(turn.conversation_id) is task:
                del self._ending[turn.conversation_id]

        task.add_done_callback(done)
        return task

    async def _record(
        self, turn: "TurnSnapshots", before: "asyncio.Task[None] | None", new: Tree | None, ended_ns: int
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        with suppress(OSError, GatewayError):  # the answer does not depend on it
            old = await turn.tree()
            if new is None:
                new = await self._scan(turn.workspace, ended_ns) if not old.problem else old
            await asyncio.to_thread(_record, self.log(turn.conversation_id), turn.chat_id, old, new, turn.edited)
            turn.forget(old)

    async def close(self) -> None:
        """Turns that have ended are recorded first."""
        if tasks := {*self._ending.values(), *self._scans.values(), *([self._recovering] if self._recovering else [])}:
            _, late = await asyncio.wait(tasks, timeout=_END_SECONDS)
            if late:
                return
        with suppress(OSError):
            await asyncio.to_thread(self.unfinished.close)


async def forget_changes(snapshots: Snapshots | None, data: str, conversation_id: str) -> None:
    """Deletes what is stored of a conversation that was deleted, also if its last turn ends just now, or nothing is
    recorded any more (`snapshots` is false).
    """
    if snapshots is not None:
        await snapshots.settled(conversation_id)
    with suppress(OSError):
        await asyncio.to_thread(UnfinishedTurns(data, "").remove_turns_of, conversation_id)
    with suppress(OSError):
        await asyncio.to_thread(ChangeLog(data, conversation_id).remove)


class TurnSnapshots:
    """What the driver of a run reports: the beginning, each batch of events, and the end."""

    def __init__(self, snapshots: Snapshots, conversation_id: str, chat_id: str, workspace: str) -> None:
        self.conversation_id, self.chat_id, self.workspace = conversation_id, chat_id, workspace
        self.edited: dict[str, str] = {}  # paths below the workspace, if they are there, by those that the agent named
        self._snapshots = snapshots
        self._before: Tree | asyncio.Task[Tree] | None = None
        self._contents: dict[str, bytes | None] = {}  # of edited files, as the last edit left them
        self._may_have_changed = False
        self._noting: asyncio.Task[None] | None = None  # the tree before it, in a file
        self._is_noted = False

    async def begin(self) -> None:
        self._before = self._snapshots.scan_before(self.workspace)
        if isinstance(self._before, asyncio.Task):
            await asyncio.wait([self._before], timeout=_BEGIN_SECONDS)

    async def tree(self) -> Tree:
        """As it was before the turn."""
        assert self._before is not None
        return self._before if isinstance(self._before, Tree) else await asyncio.shield(self._before)

    async def seen(self, batch: Sequence[agent_events.AgentEvent]) -> Sequence[agent_events.AgentEvent]:
        """The same events, with the lines and texts of edits as they are in the files."""
        if self._before is None or _WATCHED.isdisjoint(map(type, batch)):
            return batch
        found: list[agent_events.AgentEvent] = []
        for event in batch:
            match event:
                case agent_events.RunStarted(recording=recording) if recording:
                    self._before = None  # nothing really happens
                    return batch
                case agent_events.ToolStarted(action=action):
                    self._called(action)
                case agent_events.ToolEnded(action=action):
                    self._called(action)
                    if isinstance(action, agent_events.FileEdit) and event.outcome.state == "completed":
                        event = replace(event, action=await self._exact(action))
                case agent_events.RunFinished() | agent_events.RunFailed():
                    if (task := self.end()) is not None:
                        await asyncio.wait([task], timeout=_DONE_SECONDS)
                case _:
                    pass
            found.append(event)
        return found

    def _called(self, action: agent_events.Action) -> None:
        if self._may_have_changed or not may_write(action):
            return
        self._may_have_changed = True
        if self._is_noted or (self._noting is not None and not self._noting.done()):
            return
        name = TurnName(self.conversation_id, self.chat_id)
        if isinstance(self._before, Tree) and self._snapshots.unfinished.note_now(name, self._before):
            self._is_noted = True
        else:
            self._noting = asyncio.get_running_loop().create_task(self._note(name), name="snapshot")

    async def _note(self, name: TurnName) -> None:
        with suppress(Exception):  # whatever is wrong with the folder, the run continues
            tree = await self.tree()
            if not tree.problem:
                await asyncio.to_thread(self._snapshots.unfinished.note, name, tree)
                self._is_noted = True

    def forget(self, before: Tree) -> None:
        """What it changed is recorded."""
        if self._noting is not None and not self._noting.done():
            self._noting.add_done_callback(lambda _: self.forget(before))
        elif self._is_noted:
            self._is_noted = False
            self._snapshots.unfinished.ended(TurnName(self.conversation_id, self.chat_id), before)

    def end(self) -> "asyncio.Task[None] | None":
        if not self._may_have_changed or self._before is None:
            return None
        self._may_have_changed = False
        return self._snapshots.end(self, self._before)

    async def _exact(self, action: agent_events.FileEdit) -> agent_events.FileEdit:
        try:
            path = path_below(self.workspace, action.path)
        except PathRefused:
            self.edited[action.path] = ""
            return action
        self.edited[action.path] = path
        with suppress(Exception):  # whatever is wrong with the folder, the run continues
            async with asyncio.timeout(_EDIT_SECONDS):
                tree = await self.tree()
                if tree.problem or is_secret(path):
                    return action
                old = self._contents[path] if path in self._contents else await asyncio.to_thread(_before, tree, path)
                file = await asyncio.to_thread(read_below, self.workspace, path, MOST_FILE_BYTES)
                new = self._contents[path] = file.data if file is not None else None
                return exact_edit(action, old, new)
        return action


def may_write(action: agent_events.Action) -> bool:
    """Whether files may change by it."""
    match action:
        case agent_events.FileEdit() | agent_events.Command():
            return True
        case agent_events.Plan() | agent_events.Question() | agent_events.TodoUpdate():
            return False
        case agent_events.OtherTool(tool=tool):
            return tool not in _READERS


def _before(tree: Tree, path: str) -> bytes | None:
    """None: it did not exist. Raises `PathRefused` if it is unknown."""
    content = tree.content(path)
    if content is None and path in tree.entries:
        raise PathRefused("its earlier content is not known")
    return content


def exact_edit(action: agent_events.FileEdit, old: bytes | None, new: bytes | None) -> agent_events.FileEdit:
    """With the lines that differ between the file before and after it, if these are what the agent reports."""
    try:
        before, after = (data.decode() if data is not None else None for data in (old, new))
    except UnicodeDecodeError:
        return action
    if after is None or action.operation in ("delete", "rename") or before == after:
        return action
    if before is None:
        # An ignored file is not in the tree either: its other lines are not for the answer.
        if action.content is None or action.content.rstrip("\n") != after.rstrip("\n"):
            return action
        return replace(action, operation="create", content=after, diff=None)
    told = action.diff
    if told is not None and not (told.old_string in before and told.new_string in after):
        return action
    diff = line_diff(before, after)
    return replace(action, operation="edit", content=diff.new_string, diff=diff)


def _record(log: ChangeLog, chat_id: str, old: Tree, new: Tree, edited: Mapping[str, str]) -> None:
    if problem := old.problem or new.problem:
        log.append(TurnStep(chat_id, [], problem))
        return
    named = set(edited.values())
    inodes = {entry.facts[3] for entry in old.entries.values()}
    paths = sorted(
        path
        for path in {*old.entries, *new.entries}
        if _may_differ(old.entries.get(path), new.entries.get(path))
        and ((path in named and path in new.entries) or not _was_only_hidden(path, old, new, inodes))
    )
    unread = [name for name, path in edited.items() if path not in new.entries and path not in paths]
    steps: list[FileStep] = []
    for path in paths[:_MOST_FILES]:
        before, after = (_version(tree, path) for tree in (old, new))
        if after[0] is not None and stat.S_ISLNK(after[0].mode):  # a link is not restored, but it replaces a file
            after = None, None
            before = after if before[0] is not None and stat.S_ISLNK(before[0].mode) else before
        step = FileStep(path, before[0], after[0], path in named)
        if not is_same(step.before, step.after):
            log.keep(data for _, data in (before, after) if data is not None)
            steps.append(step)
    is_cut = len(paths) > _MOST_FILES
    if steps or edited or is_cut:
        log.append(TurnStep(chat_id, steps, f"More than {_MOST_FILES:,} files changed." if is_cut else "", unread))


def _was_only_hidden(path: str, old: Tree, new: Tree, inodes: Set[int]) -> bool:
    """Whether the file was there before and after the turn, and one of the trees lacks it because it was ignored, or
    its folder could not be read. It must not count as created: to revert that would delete it.
    """
    if path not in new.entries:
        return is_there(new.root, path)
    _, _, changed_ns, inode = new.entries[path].facts
    # A file that is moved with its folder is as old as before.
    return path not in old.entries and changed_ns < old.begun_ns - COARSE_NS and inode not in inodes


def _may_differ(old: TreeEntry | None, new: TreeEntry | None) -> bool:
    if old is None or new is None or (old.facts, old.mode) != (new.facts, new.mode):
        return True
    return old.is_recent and old.kept is not None and old.kept != new.kept


def _version(tree: Tree, path: str) -> tuple[FileVersion | None, bytes | None]:
    entry = tree.entries.get(path)
    if entry is None:
        return None, None
    data = tree.content(path)
    return version_of(data, entry.facts[0], entry.mode), data
