"""Rules broken on purpose: for each there is a named test that notices.

The source is copied, one fragment of it is changed, and the test is run against the copy. A fragment
that is no longer there, or a test that is gone, fails loudly.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

_PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

# pytest's own exit statuses, and ours
_TESTS_FAILED = 1
_WRONG_COPY = 99

# Most of a run's time would go into importing what is the same for all: a process that has done so forks for each.
_RUNS = f"""
import json
import os
import signal
import sys

import hypothesis.strategies
import msgspec
import pytest

for line in sys.stdin:
    source, log, *arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(600)  # for a rule whose breach never ends
        out = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.path.insert(0, source)
        import cursor_gateway
        status = pytest.main(arguments) if cursor_gateway.__file__.startswith(source) else {_WRONG_COPY}
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
_OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--noconftest"]  # half the time


class Mutation(Struct, frozen=True):
    rule: str  # what is no longer so
    module: str
    fragment: str
    replacement: str
    test: str

    def apply(self, package: Path) -> None:
        path = package / self.module
        source = path.read_text()
        assert source.count(self.fragment) == 1, f"{self.module} has this not once: {self.fragment!r}"
        path.write_text(source.replace(self.fragment, self.replacement))


_RECONCILE = "sources/cli/reconcile.py"
_DECODER = "sources/cli/decoder.py"
_ONCE = "tests/sources/test_reconcile.py::test_each_text_is_said_once_and_as_soon_as_it_is_certain"
_STREAM = "tests/sources/test_decoder.py::test_each_text_is_said_once"
_TOLD = "tests/stages/test_assembler.py::test_readers_are_sent_events_at_once"

MUTATIONS = [
    Mutation(
        "a repetition before a query is held back",
        _RECONCILE,
        "        if self.is_repetition(text):\n",
        "        if False:\n",
        f"{_ONCE}[the flush before a query looks like a delta, and is dropped when the query comes]",
    ),
    Mutation(
        "of a flush only what is new is said",
        _RECONCILE,
        "            new = text[len(whole) :]\n",
        "            new = text\n",
        f"{_ONCE}[with partial output, the flush before a tool is dropped]",
    ),
    Mutation(
        "a flush may hold only what was said since a retry",
        _RECONCILE,
        "            new = text[len(segment) :]\n",
        "            new = text\n",
        f"{_ONCE}[after a retry the flush may hold only what was said since]",
    ),
    Mutation(
        "a flush may be the only copy after a retry",
        _RECONCILE,
        "        elif not segment:\n            new = text",
        "        elif not segment:\n            new = ''",
        f"{_ONCE}[after a retry the flush may be the only copy of the rest]",
    ),
    Mutation(
        "a flush that disagrees says nothing",
        _RECONCILE,
        '            new = ""  # what was streamed stays',
        "            new = text  # what was streamed stays",
        f"{_ONCE}[a flush that disagrees with the deltas says nothing]",
    ),
    Mutation(
        "what was held is dropped at a tool",
        _RECONCILE,
        "        self._held = None\n        self._start_segment()",
        "        self._start_segment()",
        f"{_ONCE}[the flush before a query looks like a delta, and is dropped when the query comes]",
    ),
    Mutation(
        "a flush ends its segment",
        _RECONCILE,
        "        self._start_segment()\n        return released + new",
        "        return released + new",
        f"{_ONCE}[a segment ends with its flush, whatever follows]",
    ),
    Mutation(
        "a tool ends what a retry has kept",
        _RECONCILE,
        'self._length, self._earlier, self.floor = 0, "", 0',
        "self._length, self.floor = 0, 0",
        f"{_ONCE}[a tool ends what a retry has kept]",
    ),
    Mutation(
        "a result may add to what was streamed",
        _RECONCILE,
        "            return result[len(emitted) :], False",
        '            return "", False',
        f"{_ONCE}[a result that says more than the stream did adds the rest]",
    ),
    Mutation(
        "thinking tells that what was held is text",
        _DECODER,
        "            self._release()\n            if self._thinking.half:\n",
        "            if self._thinking.half:\n",
        "tests/sources/test_decoder.py::test_text_that_was_held_is_said_before_the_thought_that_follows_it",
    ),
    Mutation(
        "a strange line does not tell what was held",
        _DECODER,
        "        self._out.append(Unrecognized(reason))",
        "        self._release()\n        self._out.append(Unrecognized(reason))",
        f"{_STREAM}[a strange line before a repetition]",
    ),
    Mutation(
        "a query ends the segment",
        _DECODER,
        "        self._boundary()\n        name = record.query_type\n",
        "        name = record.query_type\n",
        f"{_STREAM}[a query without a call]",
    ),
    Mutation(
        "a tool ends the segment",
        _DECODER,
        '            case "started":\n                self._boundary()\n',
        '            case "started":\n',
        f"{_STREAM}[a repetition right before a tool]",
    ),
    Mutation(
        "half a character is replaced at a tool",
        _DECODER,
        "        self._settle_half_text()\n        self._reconciler.end_segment()",
        "        self._reconciler.end_segment()",
        "tests/sources/test_decoder.py::test_a_character_cut_in_two_is_whole_again_or_replaced[a half before a tool]",
    ),
    Mutation(
        "an end without arguments has those of its start",
        _DECODER,
        "args = {**Fields(started.args).all, **Fields(args).all}",
        "args = Fields(args).all",
        "tests/sources/test_decoder.py::test_an_end_without_arguments_has_those_of_its_start",
    ),
    Mutation(
        "the prompt's tokens are all that the model read",
        _DECODER,
        "usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens",
        "usage.input_tokens + usage.cache_read_tokens",
        "tests/sources/test_decoder.py::test_a_result_finishes_the_run[all figures]",
    ),
    Mutation(
        "a run has one result",
        _DECODER,
        "        if self.finished:\n            return\n",
        "",
        "tests/sources/test_decoder.py::test_a_run_has_one_result",
    ),
    Mutation(
        "the text after a tool is Markdown of its own",
        "stages/assembler.py",
        "        for piece in self._fences.flush():\n",
        "        for piece in self._fences.push(''):\n",
        f"{_TOLD}[a tool ends the text, and the text after it is Markdown of its own]",
    ),
    Mutation(
        "the fence splitter starts over after a flush",
        "markdown/fences.py",
        "        pieces = self._take()\n        self._reset()\n",
        "        pieces = self._take()\n",
        f"{_TOLD}[a fence that a tool cut off is over]",
    ),
    Mutation(
        "nothing is said after the end",
        "stages/assembler.py",
        "        if not self._done:\n            self._dispatch(event)\n",
        "        self._dispatch(event)\n",
        f"{_TOLD}[nothing is said after the end]",
    ),
    Mutation(
        "a call that never ended was interrupted",
        "stages/assembler.py",
        "INTERRUPTED, None)",
        "Outcome(), None)",
        "tests/stages/test_assembler.py::test_a_call_that_never_ended_was_interrupted",
    ),
    Mutation(
        "a call ends once",
        "stages/assembler.py",
        "        self._ended_calls.add(call_id)\n",
        "",
        f"{_TOLD}[a call starts once and ends once]",
    ),
    Mutation(
        "a pause ends the text",
        "stages/assembler.py",
        '        self._end_output()\n        envelope = self._envelope("streaming"',
        '        envelope = self._envelope("streaming"',
        f"{_TOLD}[a pause ends the text, and says the white space behind it]",
    ),
    Mutation(
        "a call of the caller's is answered once",
        "stages/assembler.py",
        "                if call_id in self._tools:\n                    self._end_caller_tool(event)\n",
        "                self._end_caller_tool(event)\n",
        f"{_TOLD}[a call of the caller's is asked for once and answered once]",
    ),
    Mutation(
        "the agent's source is said once",
        "stages/assembler.py",
        "_drained(self._space) + raw)\n\n    def _end_output",
        "_drained(self._space) + raw + raw)\n\n    def _end_output",
        f"{_TOLD}[a fence with a language is a document]",
    ),
    Mutation(
        "white space that waited is said once",
        "stages/assembler.py",
        '    text = "".join(pieces)\n    del pieces[:]\n',
        '    text = "".join(pieces)\n',
        f"{_TOLD}[line ends wait until text follows, other white space only behind them]",
    ),
    Mutation(
        "a delta names the document that grows",
        "dialects/documents/encoder.py",
        "            if event.id != self._growing:\n",
        "            if not self._growing:\n",
        "tests/dialects/documents/test_encoder.py::test_what_was_encoded_is_decoded_the_same",
    ),
    Mutation(
        "a tool's content is no text of the agent's",
        "stages/assembler.py",
        '            self._out.append(document_events.ContentDelta(tool.id, content, raw=""))',
        "            self._out.append(document_events.ContentDelta(tool.id, content))",
        f"{_TOLD}[an edit's content comes with its end]",
    ),
    Mutation(
        "what the caller has run is not told to it",
        "dialects/deltas.py",
        'metadata.ran_by == "caller"',
        "False",
        "tests/dialects/test_deltas.py::test_what_the_caller_has_run_is_not_repeated[reasoning]",
    ),
    Mutation(
        "usage is the context of the last model call, not the sum",
        "dialects/deltas.py",
        "document_events.reply_usage(event), envelope.usage",
        "envelope.usage, envelope.usage",
        "tests/dialects/chat/test_encoder.py::test_usage_is_the_last_calls_and_the_sum_has_a_field_of_ours[23400-23400]",
    ),
    Mutation(
        "usage is told only when asked for",
        "dialects/chat/encoder.py",
        'if self._include_usage else b""',
        'if True else b""',
        "tests/dialects/chat/test_encoder.py::test_usage_is_a_chunk_of_its_own_only_when_asked_for",
    ),
]


@pytest.fixture(scope="module")
def runs() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _RUNS],
        cwd=_PROJECT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def _status(runs: subprocess.Popen[str], source: Path, *tests: str) -> tuple[int, str]:
    assert runs.stdin is not None
    assert runs.stdout is not None
    log = source / "log.txt"
    runs.stdin.write(json.dumps([str(source), str(log), *tests, *_OPTIONS]) + "\n")
    runs.stdin.flush()
    return int(runs.stdout.readline()), log.read_text(encoding="utf-8")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.rule for mutation in MUTATIONS])
@pytest.mark.quick_cases(5)
def test_a_broken_rule_is_noticed(mutation: Mutation, runs: subprocess.Popen[str], tmp_path: Path) -> None:
    shutil.copytree(_PROJECT / "src", tmp_path, dirs_exist_ok=True)  # with what is compiled: it is valid by its time
    mutation.apply(tmp_path / "cursor_gateway")
    status, result = _status(runs, tmp_path, mutation.test)
    assert status == _TESTS_FAILED, result


def test_without_a_mutation_the_tests_that_notice_are_green(runs: subprocess.Popen[str], tmp_path: Path) -> None:
    shutil.copytree(_PROJECT / "src", tmp_path, dirs_exist_ok=True)
    status, result = _status(runs, tmp_path, *sorted({mutation.test for mutation in MUTATIONS}))
    assert status == 0, result
