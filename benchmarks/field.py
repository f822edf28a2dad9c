"""A folder in; everything that is compared, up at the same time, and the ways to time it, out."""

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from benchmarks.compiling import compile_program
from benchmarks.contenders import DOCUMENTS, OPENAI, PLAIN, RELAY, Contender, Server, gateway, module_server
from benchmarks.failing import BenchmarkFailed
from benchmarks.loading import Load, Summary
from benchmarks.replies import Documents, body_of
from benchmarks.run import RUN, pieces, text_of
from benchmarks.sessions import SIZES, Session, named_session
from cursor_gateway import read_response
from cursor_gateway.model.documents import document_type

Round: TypeAlias = dict[str, float]


class Field:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        programs = folder / "programs"
        programs.mkdir()
        self.agent = compile_program("agent.c", programs / "cursor-agent")
        self.load = Load(compile_program("load.c", programs / "load"), folder)
        self.sessions = {name: named_session(name) for name in SIZES}
        for name, session in self.sessions.items():
            (programs / f"{name}.ndjson").write_bytes(session.data)
        self._documents: dict[str, Documents] = {}

    @cached_property
    def gateway(self) -> Server:
        return self.new_gateway("gateway")

    @cached_property
    def openai(self) -> Contender:
        return Contender(self.gateway, OPENAI)

    @cached_property
    def documents(self) -> Contender:
        return Contender(self.gateway, DOCUMENTS)

    @cached_property
    def relay(self) -> Contender:
        return Contender(self._module("relay"), RELAY)

    @cached_property
    def plain(self) -> Contender:
        return Contender(self._module("plain"), PLAIN)

    def new_gateway(
        self,
        name: str,
        data: Path | None = None,
        settings: Mapping[str, str | None] | None = None,
        checkout: Path | None = None,
    ) -> Server:
        return self._stack.enter_context(
            gateway(self.agent, self.folder / name, data=data, settings=settings, checkout=checkout)
        )

    def _module(self, name: str) -> Server:
        return self._stack.enter_context(module_server(name, self.agent, self.folder / name))

    # --- one measurement ----------------------------------------------------------------------------

    def ask(
        self, contender: Contender, session: str, how: str = "", *, concurrency: int = 1, count: int = 1
    ) -> Summary:
        """The session through this contender; the first of its replies must tell what the agent said."""
        summary, reply = self.load.ask(
            contender, f"replay {session} {how}".strip(), concurrency=concurrency, count=count
        )
        answer = contender.dialect.answer(body_of(reply))
        expected = self.sessions[session].text if isinstance(answer, str) else self._expected_documents(session)
        if answer != expected:
            raise BenchmarkFailed(
                f"{contender.dialect.path} answered something else than the agent wrote ({session} lines)."
            )
        return summary

    def total(self, contender: Contender, session: str, how: str = "", count: int = 1) -> float:
        """Seconds from the request to the end of the reply."""
        return self.ask(contender, session, how, count=count).total

    def _expected_documents(self, name: str) -> Documents:
        if name not in self._documents:
            session: Session = self.sessions[name]
            parts = pieces(session.data)
            if text_of(parts) != session.text:
                raise BenchmarkFailed("The text that came out of the pipeline is not the text that went in.")
            response = read_response(parts, RUN)
            self._documents[name] = [
                (document_type(document.metadata), document.content or "") for document in response.documents
            ]
        return self._documents[name]

    def pipe(self, session: str, how: str = "") -> float:
        """The limit: `agent | cat > /dev/null`, in seconds."""
        began = time.perf_counter()
        with subprocess.Popen([self.agent, f"replay {session} {how}".strip()], stdout=subprocess.PIPE) as agent:
            with subprocess.Popen(["cat"], stdin=agent.stdout, stdout=subprocess.DEVNULL) as cat:
                assert agent.stdout is not None
                agent.stdout.close()  # or cat would have a second writer
            if cat.returncode or agent.wait():
                raise BenchmarkFailed("`agent | cat` failed.")
        return time.perf_counter() - began


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def rotated(
    actions: Mapping[str, Callable[[], float]], rounds: int, seldom: Mapping[str, Callable[[], float]] | None = None
) -> list[Round]:
    """What each gives in each round; whoever was first in one round is last in the next.

    What takes long without being what is asked about is measured `seldom`, in every third round.
    """
    found = []
    for turn in range(rounds):
        measured = {**actions, **((seldom or {}) if turn % 3 == 0 else {})}
        names = list(measured)
        first = turn % len(names)
        found.append({name: measured[name]() for name in names[first:] + names[:first]})
    return found


def ratio(rounds: list[Round], name: str, *bases: str) -> float:
    """The median over all rounds of the figure in units of the bases' sum in the same round."""
    return statistics.median(turn[name] / sum(turn[base] for base in bases) for turn in rounds if name in turn)


def median(rounds: list[Round], name: str) -> float:
    return statistics.median(turn[name] for turn in rounds if name in turn)
