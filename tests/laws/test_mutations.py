"""Rules broken on purpose: for each there is a named test that notices.

The source is copied, one fragment of it is changed, and the test is run against the copy. A fragment
that is no longer there, or a test that is gone, fails loudly.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

_PROJECT = Path(__file__).parents[2]

# pytest's own exit statuses, and ours
_TESTS_FAILED = 1
_WRONG_COPY = 99

_RUN = f"""
import sys
import cursor_gateway
if not cursor_gateway.__file__.startswith(sys.argv[1]):
    sys.exit({_WRONG_COPY})
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


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


_RECONCILE = "sources/cursor_cli/reconcile.py"
_DECODER = "sources/cursor_cli/decoder.py"
_ONCE = "tests/sources/test_reconcile.py::test_each_text_is_said_once_and_as_soon_as_it_is_certain"
_STREAM = "tests/sources/test_decoder.py::test_each_text_is_said_once"
_TOLD = "tests/core/test_assembler.py::test_readers_are_told_at_once"

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
        "            new = text[len(said) :]\n",
        "            new = text\n",
        f"{_ONCE}[after a retry the flush may hold only what was said since]",
    ),
    Mutation(
        "a flush may be the only copy after a retry",
        _RECONCILE,
        "        elif not said:\n            new = text",
        "        elif not said:\n            new = ''",
        f"{_ONCE}[after a retry the flush may be the only copy of the rest]",
    ),
    Mutation(
        "a flush that disagrees says nothing",
        _RECONCILE,
        '            new = ""  # what was streamed stands',
        "            new = text  # what was streamed stands",
        f"{_ONCE}[a flush that disagrees with the deltas says nothing]",
    ),
    Mutation(
        "what was held is dropped at a tool",
        _RECONCILE,
        "        self._held = None\n        self._end_segment()",
        "        self._end_segment()",
        f"{_ONCE}[the flush before a query looks like a delta, and is dropped when the query comes]",
    ),
    Mutation(
        "a flush ends its segment",
        _RECONCILE,
        "        self._end_segment()\n        return released + new",
        "        return released + new",
        f"{_ONCE}[a segment ends with its flush, whatever follows]",
    ),
    Mutation(
        "a tool ends what a retry has kept",
        _RECONCILE,
        'self._start, self._earlier, self.floor = len(self.said), "", 0',
        "self._start, self.floor = len(self.said), 0",
        f"{_ONCE}[a tool ends what a retry has kept]",
    ),
    Mutation(
        "a result may add to what was streamed",
        _RECONCILE,
        "            return result[len(said) :], False",
        '            return "", False',
        f"{_ONCE}[a result that says more than the stream did adds the rest]",
    ),
    Mutation(
        "thinking tells that what was held is text",
        _DECODER,
        "            self._go_on()\n            self._settle_half_thought()\n",
        "            self._settle_half_thought()\n",
        "tests/sources/test_decoder.py::test_text_that_was_held_is_said_before_the_thought_that_follows_it",
    ),
    Mutation(
        "a strange line does not tell what was held",
        _DECODER,
        "        self._out.append(Unrecognized(reason))",
        "        self._go_on()\n        self._out.append(Unrecognized(reason))",
        f"{_STREAM}[a strange line before a repetition]",
    ),
    Mutation(
        "a query ends the segment",
        _DECODER,
        "        self._boundary()\n        name = next(",
        "        name = next(",
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
        "        self._settle_half_text()\n        self._reconciler.break_off()",
        "        self._reconciler.break_off()",
        "tests/sources/test_decoder.py::test_a_character_cut_in_two_is_whole_again_or_replaced[a half before a tool]",
    ),
    Mutation(
        "an end without arguments has those of its start",
        _DECODER,
        "args or begun.args",
        "args",
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
        "        if self._finished:\n            return\n",
        "",
        "tests/sources/test_decoder.py::test_a_run_has_one_result",
    ),
    Mutation(
        "the text after a tool is Markdown of its own",
        "core/assembler.py",
        "        for piece in self._fences.flush():\n",
        "        for piece in self._fences.push(''):\n",
        f"{_TOLD}[a tool ends the text, and the text after it is Markdown of its own]",
    ),
    Mutation(
        "the fence splitter starts afresh after a flush",
        "core/fences.py",
        "        pieces = self._take()\n        self._reset()\n",
        "        pieces = self._take()\n",
        f"{_TOLD}[a fence that a tool cut off is over]",
    ),
    Mutation(
        "nothing is said after the end",
        "core/assembler.py",
        "        if self._done:\n            return []\n",
        "",
        f"{_TOLD}[nothing is said after the end]",
    ),
    Mutation(
        "a call that never ended was interrupted",
        "core/assembler.py",
        "INTERRUPTED, None)",
        "Outcome(), None)",
        "tests/core/test_assembler.py::test_a_call_that_never_ended_was_interrupted",
    ),
    Mutation(
        "a call ends once",
        "core/assembler.py",
        "        self._ended_calls.add(event.call_id)\n",
        "",
        f"{_TOLD}[a call starts once and ends once]",
    ),
    Mutation(
        "the agent's source is said once",
        "core/assembler.py",
        "self._take_space() + raw)\n\n    def _end_text",
        "self._take_space() + raw + raw)\n\n    def _end_text",
        f"{_TOLD}[a fence with a language is a document]",
    ),
    Mutation(
        "white space that waited is said once",
        "core/assembler.py",
        '        space = "".join(self._space)\n        self._space = []\n',
        '        space = "".join(self._space)\n',
        f"{_TOLD}[line ends wait until text follows, other white space only behind them]",
    ),
    Mutation(
        "a delta names the document that grows",
        "dialects/documents.py",
        "            if event.id != self._growing:\n",
        "            if not self._growing:\n",
        "tests/dialects/test_documents.py::test_what_was_encoded_is_decoded_the_same",
    ),
    Mutation(
        "a tool's content is no text of the agent's",
        "core/assembler.py",
        '            self._out.append(ContentDelta(tool.id, content, raw=""))',
        "            self._out.append(ContentDelta(tool.id, content))",
        f"{_TOLD}[an edit's content comes with its end]",
    ),
    Mutation(
        "usage is told only when asked for",
        "dialects/openai_chat.py",
        'if self._include_usage else b""',
        'if True else b""',
        "tests/dialects/test_openai_chat.py::test_usage_is_a_chunk_of_its_own_only_when_asked_for",
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.rule for mutation in MUTATIONS])
def test_a_broken_rule_is_noticed(mutation: Mutation, tmp_path: Path) -> None:
    shutil.copytree(_PROJECT / "src", tmp_path, dirs_exist_ok=True)  # with what is compiled: it is valid by its time
    mutation.apply(tmp_path / "cursor_gateway")
    options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--noconftest"]  # half the time
    found = subprocess.run(
        [sys.executable, "-c", _RUN, str(tmp_path), mutation.test, *options],
        cwd=_PROJECT,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == _TESTS_FAILED, f"{found.stdout}\n{found.stderr}"
