"""`cursor-gateway verify`: find out whether the installed agent does what the gateway expects.

Short prompts are sent to one backend. Each asks for something that can be checked without understanding the answer: a
random word, a file, a document.
"""

import asyncio
import json
import os
import platform
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.output import Trouble, aside
from cursor_gateway.errors import GatewayError
from cursor_gateway.model import documents
from cursor_gateway.model.answers import Decision
from cursor_gateway.model.document_events import ContentDelta, Paused
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from rich.table import Table

    from cursor_gateway.client.asynchronous import AsyncClient


_PROMPT_SECONDS = 180.0
_HELD_SECONDS = 65.0  # longer than the agent waits for a hook without a limit of its own
HELD = "held command"  # the check that a hook holds a command for as long as a person takes
_FILE = "verified.json"  # in the data directory
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_HOOK = 'cat >>{calls}; sleep 1; echo \'{{"permission": "deny", "user_message": "{word}"}}\''

# What the agent is asked. `{word}` is new for each backend.
PROMPTS: Mapping[str, str] = {
    "text": "Reply with exactly this word and nothing else: {word}",
    "text again": "Reply with exactly this word and nothing else: {word}",
    "resume": "Which word did I ask you to reply with? Reply with that word only.",
    "read": "Read the file notes.txt with your file tool, and reply with its content only.",
    "edit": "Create the file made.txt with exactly this content: {word}",
    "refused command": "Run this shell command once, and nothing else: touch {folder}/refused.txt",
    "permission": "Run this shell command once, and nothing else: touch {folder}/permitted.txt",
    "question": "Ask me with your question tool whether I prefer tea or coffee. Do not answer it yourself.",
    "cancel": "Count from 1 to 2000 in words, one number per line. Do not stop early, and use no tools.",
    "hook": "Run this shell command once, and nothing else: touch {folder}/hooked.txt",
    HELD: "Run this shell command once, and nothing else: touch {folder}/held.txt",
    "released command": "Run this shell command once, and nothing else: touch {folder}/released.txt",
}

Outcome = Literal["same", "different", "skipped"]


class CheckResult(Struct, frozen=True):
    check: str
    outcome: Outcome
    found: str


class Verified(Struct, frozen=True):
    """What `verify` found out about a version of a backend."""

    source: str
    version: str
    platform: str
    date: str
    results: list[CheckResult]

    @property
    def differences(self) -> list[str]:
        return [result.check for result in self.results if result.outcome == "different"]

    @property
    def counted(self) -> str:
        count = len(self.differences)
        return f"{count} difference{'' if count == 1 else 's'}" if count else "no differences"


class Skipped(Exception):
    """The backend cannot do this; the text says why."""


class Different(Exception):
    """The backend does not do what the gateway expects."""


class Verification:
    def __init__(
        self,
        client: "AsyncClient",
        source: str,
        folder: Path,
        running_agents: Callable[[], int],
        recording: "RawRecording",
        adapt: Callable[[str, str], str] = lambda check, prompt: prompt,
        hooked: "Callable[[], AbstractAsyncContextManager[AsyncClient]] | None" = None,
    ) -> None:
        """`folder` is the workspace. `adapt` may change a prompt. `hooked` is another gateway, with `approvals` set to
        `hooks`."""
        self._client, self._source, self._folder = client, source, folder
        self._running_agents, self._recording, self._adapt, self._hooked = running_agents, recording, adapt, hooked
        self._word = f"verify-{secrets.token_hex(4)}"
        self._first: documents.ChatResponse | None = None
        self.answers: dict[str, documents.ChatResponse] = {}

    def checks(self) -> dict[str, Callable[[], Awaitable[str]]]:
        """By name. Each returns what it found, and raises `Different` or `Skipped`."""
        return {
            "text": self._text,
            "resume": self._resume,
            "text again": self._text_again,  # meanwhile, an agent was started in advance for it
            "read": self._read,
            "edit": self._edit,
            "refused command": self._refused,
            "permission": self._permission,
            "question": self._question,
            "cancel": self._cancel,
            "hook": self._hook,
            HELD: self._held,
            "usage": self._usage,
            "models": self._models,
        }

    async def run(self, check: str) -> CheckResult:
        from cursor_gateway.client.failures import CallFailed, CannotReach

        self._recording.check = check
        try:
            async with asyncio.timeout(_PROMPT_SECONDS):
                return CheckResult(check, "same", await self.checks()[check]())
        except Skipped as reason:
            return CheckResult(check, "skipped", str(reason))
        except (Different, CallFailed, CannotReach) as error:
            return CheckResult(check, "different", str(error))
        except TimeoutError:
            return CheckResult(check, "different", f"no answer within {_PROMPT_SECONDS:g} s")

    # --- the checks ---------------------------------------------------------------------------------

    async def _text(self) -> str:
        self._first, seconds = await self._ask("text")
        said = self._said(self._first, self._word)
        if self._source == "cli" and (result := self._recording.result("text")) != self._word:
            raise Different(f"the text is exact, but the agent's `result` is {_short(result or '')}")
        return f"{said}{' and equals `result`' * (self._source == 'cli')}; {_first_text(self._first, seconds)}"

    async def _text_again(self) -> str:
        response, seconds = await self._ask("text again")
        return f"{self._said(response, self._word)}; {_first_text(response, seconds)}"

    async def _resume(self) -> str:
        if self._first is None:
            raise Skipped("there is no first answer")
        response, _ = await self._ask("resume", conversation_id=self._first.conversation_id)
        if self._word not in response.text:
            raise Different(f"the agent does not remember the word; it said {_short(response.text)}")
        return "the agent remembers the conversation"

    async def _read(self) -> str:
        content = f"note {secrets.token_hex(4)}"
        (self._folder / "notes.txt").write_text(f"{content}\n")
        response, _ = await self._ask("read")
        tools = [_type(one) for one in response.documents if not isinstance(one, documents.TextDocument)]
        if not tools:
            raise Different("no tool call was reported")
        if content not in response.text and content not in _plain(response):
            raise Different(f"the content is not in the answer: {_short(response.text)}")
        return f"reported as {', '.join(dict.fromkeys(tools))}"

    async def _edit(self) -> str:
        response, _ = await self._ask("edit")
        file = self._folder / "made.txt"
        if not file.is_file() or self._word not in file.read_text("utf-8", "replace"):
            raise Different("the file was not created")
        if not any(isinstance(one, documents.FileEditDocument) for one in response.documents):
            raise Different("the file was created, but no edit was reported")
        return "the file was created, and the edit reported"

    async def _refused(self) -> str:
        response, _ = await self._ask("refused command")
        if (self._folder / "refused.txt").exists():
            raise Different("the command was executed, although nothing allows it")
        commands = [one for one in response.documents if isinstance(one, documents.TerminalCommandDocument)]
        if not commands:
            raise Different(f"not executed, but no command was reported; it said {_short(response.text)}")
        return f"not executed; reported as {commands[0].metadata.state}"

    async def _permission(self) -> str:
        run_id, document_id, waits = await self._wanted(self._client, "permission")
        await self._decide(self._client, "permission", run_id, document_id, "once")
        if not (self._folder / "permitted.txt").exists():
            raise Different("permission was granted, but the command was not executed")
        return f"the agent {'waited' if waits else 'ended, and was resumed'}; the command was executed"

    async def _held(self) -> str:
        """With everything allowed by the agent's own rules, so that only the hook decides."""
        if self._hooked is None:
            raise Skipped('only the CLI needs it, for `approvals = "hooks"`')
        held, released = self._folder / "held.txt", self._folder / "released.txt"
        async with self._hooked() as client:
            run_id, document_id, waits = await self._wanted(client, HELD)
            if not waits:
                raise Different("the agent did not wait for the hook")
            await asyncio.sleep(_HELD_SECONDS)
            if held.exists():
                raise Different("the command was executed while the hook was waiting")
            await self._decide(client, HELD, run_id, document_id, "deny")
            if held.exists():
                raise Different("the command was executed, although the hook denied it")
            run_id, document_id, _ = await self._wanted(client, "released command")
            await self._decide(client, "released command", run_id, document_id, "once")
            if not released.exists():
                raise Different("the hook allowed the command, but it was not executed")
        return f"a hook held the command for {_HELD_SECONDS:g} s, and then decided"

    async def _wanted(self, client: "AsyncClient", check: str) -> tuple[str, str, bool]:
        """The run and the document that wants permission, and whether the run waits for it."""
        run_id = await client.start(self._prompt(check), may_ask=True, include=["raw"])
        waits = False
        async with client.events(run_id) as stream:
            async for event in stream:
                if waits := isinstance(event, Paused):
                    break
        asked = [one for one in (await client.response(run_id)).documents if _wants_permission(one)]
        if not asked:
            raise Different("no permission was asked for")
        return run_id, asked[0].id, waits

    async def _decide(
        self, client: "AsyncClient", check: str, run_id: str, document_id: str, decision: Decision
    ) -> None:
        from cursor_gateway.dialects.documents.request import PermissionAnswer

        answer = PermissionAnswer(document_id=document_id, decision=decision)
        continued = await client.answer(run_id, permissions=[answer])
        async with client.events(continued) as stream:
            self.answers[check] = await stream.result()

    async def _question(self) -> str:
        if self._source == "sdk":
            raise Skipped("the SDK's own questions are replaced by `ask_user`")
        response, _ = await self._ask("question")
        asked = [one for one in response.documents if isinstance(one, documents.ClarificationDocument)]
        if not asked:
            raise Different(f"no question was reported; it said {_short(response.text)}")
        return f"{len(asked[0].metadata.questions)} question with {len(asked[0].metadata.questions[0].options)} options"

    async def _cancel(self) -> str:
        run_id = await self._client.start(self._prompt("cancel"))
        async with self._client.events(run_id) as stream:
            async for event in stream:
                if isinstance(event, ContentDelta):
                    break
        began = time.monotonic()
        response = await self._client.cancel(run_id)
        seconds = time.monotonic() - began
        if response.status == "completed":
            raise Different("the answer was complete before it could be cancelled")
        if self._source == "cli" and self._running_agents():
            raise Different(f"{self._running_agents()} agents still run {seconds:.2f} s after the request")
        kept = "" if self._source == "cli" else "; the agent is kept for other conversations"
        return f"ended within {seconds:.2f} s{kept}"

    async def _hook(self) -> str:
        folder = self._folder / "hooked"
        calls = folder / "calls.jsonl"
        (folder / ".cursor").mkdir(parents=True)
        script = folder / "hook.sh"
        script.write_text(_HOOK.format(calls=calls, word=self._word))
        hook = {"command": f"sh {script}", "timeout": 60, "failClosed": True}
        (folder / ".cursor" / "hooks.json").write_text(json.dumps({"version": 1, "hooks": {"preToolUse": [hook]}}))
        response, _ = await self._ask("hook", workspace=str(folder))
        if not calls.exists():
            ran = any(isinstance(one, documents.TerminalCommandDocument) for one in response.documents)
            raise Different("the hook was not called" if ran else "the agent ran no command, so no hook was called")
        if (folder / "hooked.txt").exists():
            raise Different("the hook was called, but the command was executed")
        return "preToolUse was called, and blocked the command"

    async def _usage(self) -> str:
        if self._first is None:
            raise Skipped("there is no first answer")
        usage = self._first.usage
        if usage.estimated is True or not usage.total_tokens:
            if self._source == "acp":
                raise Skipped("over ACP, the agent reports no tokens; the figures are estimates")
            raise Different("the agent reported no tokens; the figures are estimates")
        return f"{usage.prompt_tokens} in, {usage.completion_tokens} out"

    async def _models(self) -> str:
        found = await self._client.models()
        if not found:
            raise Different("no models are listed")
        used = self._first.model if self._first is not None else ""
        return f"{len(found)} models" + (f"; {used} answered" if used else "")

    # ------------------------------------------------------------------------------------------------

    def _prompt(self, check: str) -> str:
        folder = self._folder / "hooked" if check == "hook" else self._folder
        return self._adapt(check, PROMPTS[check].format(word=self._word, folder=folder))

    async def _ask(
        self, check: str, *, conversation_id: str | None = None, workspace: str | None = None
    ) -> tuple[documents.ChatResponse, float]:
        """The answer, and the seconds until its first text."""
        began, first = time.monotonic(), 0.0
        prompt = self._prompt(check)
        async with self._client.stream(
            prompt, conversation_id=conversation_id, workspace=workspace, include=["raw"]
        ) as stream:
            async for event in stream:
                if not first and isinstance(event, ContentDelta):
                    first = time.monotonic() - began
            self.answers[check] = await stream.result()
        return self.answers[check], first

    def _said(self, response: documents.ChatResponse, word: str) -> str:
        if response.text.strip() != word:
            raise Different(f"expected {word}, the answer was {_short(response.text)}")
        return "the text is exact"


def _wants_permission(document: documents.Document) -> bool:
    return getattr(document.metadata, "permission", UNSET) is not UNSET


def _type(document: documents.Document) -> str:
    return str(type(document).__struct_config__.tag)


def _plain(response: documents.ChatResponse) -> str:
    return msgspec.json.encode(response).decode()


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


# --- what is kept ---------------------------------------------------------------------------------------


def verified_now(source: str, version: str, results: list[CheckResult]) -> Verified:
    return Verified(source, version, f"{platform.system()} {platform.machine()}", time.strftime("%Y-%m-%d"), results)


def read_verified(data: Path) -> list[Verified]:
    try:
        return msgspec.json.decode((data / _FILE).read_bytes(), type=list[Verified])
    except (OSError, msgspec.DecodeError):
        return []


def holds_commands(data: Path, version: str) -> bool:
    """Whether this version of the CLI was seen to wait for its hooks, and to obey them."""
    needed = {"hook", HELD}
    return any(
        (one.source, one.version) == ("cli", version)
        and needed <= {result.check for result in one.results if result.outcome == "same"}
        for one in read_verified(data)
    )


def store_verified(data: Path, new: Verified) -> None:
    """Instead of an earlier one of the same version. Raises `OSError`."""
    others = [one for one in read_verified(data) if (one.source, one.version) != (new.source, new.version)]
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = data / f"{_FILE}.part"
    part.write_bytes(msgspec.json.format(msgspec.json.encode([*others, new])))
    part.replace(data / _FILE)


# --- recordings -----------------------------------------------------------------------------------------


class RawRecording:
    """The output of each agent, in a file named after its check; its arguments beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.check = folder, ""
        folder.mkdir(parents=True, exist_ok=True)

    def tap(self, arguments: Sequence[str]) -> Callable[[bytes], None]:
        """An agent that waits for a prompt belongs to the check that gives it one."""
        file = None if "-p" in arguments else self._new_file(arguments)

        def write(piece: bytes) -> None:
            nonlocal file
            file = file or self._new_file(arguments)
            with file.open("ab") as opened:
                opened.write(piece)

        return write

    def _new_file(self, arguments: Sequence[str]) -> Path:
        name = re.sub(r"\W+", "-", self.check or "start")
        number = len(list(self._folder.glob(f"{name}-*.argv.json"))) + 1
        (self._folder / f"{name}-{number}.argv.json").write_text(json.dumps(list(arguments)))
        return self._folder / f"{name}-{number}.ndjson"

    def result(self, check: str) -> str | None:
        """The text of the CLI's last message, of a check with one prompt."""
        for line in reversed(
            b"".join(file.read_bytes() for file in self._folder.glob(f"{check}-1.ndjson")).splitlines()
        ):
            with suppress(ValueError, AttributeError):
                if (message := json.loads(line)).get("type") == "result":
                    return str(message.get("result", ""))
        return None


def _first_text(response: documents.ChatResponse, seconds: float) -> str:
    return f"first text after {seconds:.2f} s ({'warm' if response.metadata.warm is True else 'cold'})"


def redact(folder: Path, secret_values: Iterable[str], folders: Mapping[str, str]) -> None:
    """In all files: without secrets and addresses, and with other names for these folders."""
    replaced = {value: "[redacted]" for value in secret_values if value} | dict(folders)
    for file in folder.rglob("*.*json"):
        text = file.read_text("utf-8", "surrogateescape")
        for value in sorted(replaced, key=len, reverse=True):
            text = text.replace(json.dumps(value)[1:-1], replaced[value])
        file.write_text(_ADDRESS.sub("redacted@example.invalid", text), "utf-8", "surrogateescape")


SOURCES = ("cli", "acp", "sdk")
_MARKS = {"same": "✓", "different": "✗", "skipped": "–"}
_STYLES = {"same": "green", "different": "red", "skipped": "dim"}

Adapt = Callable[[str, str], str]


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway verify
      cursor-gateway verify --source cli --yes
      cursor-gateway verify --record recordings      raw output, to attach to a report

    \b
    Exit status: 0 no differences; 1 differences; 2 nothing was verified.""",
)
@config
@click.option("--source", "only", type=click.Choice(SOURCES), multiple=True, help="Only this backend; may be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask before prompts are sent.")
@click.option("--record", metavar="DIR", help="Keep the agent's raw output in this folder, without secrets.")
def verify(config: str | None, only: Sequence[str], yes: bool, record: str | None) -> int:
    """Check with short prompts that the installed agent does what the gateway expects.

    The prompts are sent to Cursor, and count towards your plan. The agent works in a temporary folder.
    """
    settings = configuration(config).settings
    found = set_up(settings, os.environ)
    sources = [source for source in only or SOURCES if found[source] == ""]
    for source in only:
        if found[source]:
            raise Trouble(f"`{source}` is not set up: {found[source]}.")
    if not sources:
        raise Trouble("no backend is set up; run `cursor-gateway doctor`.")
    _confirm(sources, yes=yes)
    results = asyncio.run(_verify_all(settings, sources, Path(record) if record else None))
    return 1 if any(one.differences for one in results) else 0


def _confirm(sources: Sequence[str], *, yes: bool) -> None:
    count = len(PROMPTS) * len(sources)
    aside(f"Up to {count} short prompts will be sent to Cursor, {len(PROMPTS)} with each of: {', '.join(sources)}.")
    if yes:
        return
    if not sys.stdin.isatty():
        raise Trouble("nothing was sent; add `--yes` to send the prompts without being asked.")
    click.confirm("Send them?", abort=True, err=True)


def set_up(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Why each backend cannot be used here; empty if it can, as far as is known without trying."""
    from cursor_gateway.cli.assembly.sources import unsupported
    from cursor_gateway.sources.cursor.program import candidates
    from cursor_gateway.sources.sdk.bridge import MODULE

    program = "" if candidates(settings.agent_program, environ) else "cursor-agent is not installed"
    sdk = "" if find_spec(MODULE) is not None else "cursor-sdk is not installed"
    sdk = sdk or ("" if environ.get("CURSOR_API_KEY") else "CURSOR_API_KEY is not set")
    own = msgspec.structs.replace(settings, record_dir="")
    return {"cli": program, "acp": program or unsupported("acp", own), "sdk": sdk or unsupported("sdk", own)}


async def _verify_all(settings: Settings, sources: Sequence[str], record: Path | None) -> "list[Verified]":
    from cursor_gateway.cli.output import terminal

    console, results = terminal(), []
    with console.status("Starting…") as status:
        for source in sources:

            def show(check: str, source: str = source) -> None:
                done = list(PROMPTS).index(check) + 1 if check in PROMPTS else len(PROMPTS)
                status.update(f"{source}: {check} ({done} of {len(PROMPTS)} prompts)")

            try:
                results.append(await verify_source(settings, source, record, show))
            except GatewayError as error:
                aside(f"{source} cannot be started: {error}")
                continue
            store_verified(data_dir(settings), results[-1])
            console.print(table_of(results[-1]))
    if not results:
        raise Trouble("nothing was verified.")
    return results


async def verify_source(
    settings: Settings,
    source: str,
    record: Path | None = None,
    show: Callable[[str], None] = lambda check: None,
    adapt: Adapt = lambda check, prompt: prompt,
) -> "Verified":
    """With a gateway of its own, in a temporary folder. Raises a `GatewayError` if that cannot start."""
    from cursor_gateway.cli.assembly.own_gateway import own_gateway
    from cursor_gateway.sources.process import tapped
    from cursor_gateway.sources.processes import running

    with _scratch() as scratch:
        work = scratch / "work"
        work.mkdir()
        own = _own_settings(settings, source, scratch)
        recording = RawRecording(scratch / "raw")
        with tapped(recording.tap):
            async with own_gateway(own, str(work)) as gateway:
                version = version_in(gateway.gateway.service.source.state().detail)
                hooked = partial(_with_hooks, own, work, version) if source == "cli" else None
                verification = Verification(gateway.client, source, work, running, recording, adapt, hooked)
                results = []
                for check in verification.checks():
                    show(check)
                    results.append(await verification.run(check))
                result = verified_now(source, version, results)
                await _forget(gateway.client)
        if record is not None:
            _keep(record / source, scratch, verification, result, _secrets(settings))
    return result


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cursor-gateway-verify-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@asynccontextmanager
async def _with_hooks(own: Settings, work: Path, version: str) -> "AsyncIterator[AsyncClient]":
    """A gateway that uses hooks, as if this version had passed the checks for that."""
    from cursor_gateway.cli.assembly.own_gateway import own_gateway

    data = Path(own.data_dir).with_name("data-with-hooks")
    store_verified(data, verified_now("cli", version, [CheckResult("hook", "same", ""), CheckResult(HELD, "same", "")]))
    settings = msgspec.structs.replace(own, data_dir=str(data), approvals="hooks")
    async with own_gateway(settings, str(work)) as gateway:
        yield gateway.client
        await _forget(gateway.client)


def _own_settings(settings: Settings, source: str, scratch: Path) -> Settings:
    return msgspec.structs.replace(
        settings,
        source=source,
        data_dir=str(scratch / "data"),
        store="",
        history=True,
        record_dir="",
        permissions="ask",
        approvals="agent",
        allow=[],
        force=False,
        refuse_workspace_hooks=False,
        account_error_seconds=0,
        spare_agents=2,  # for the next turn, and for the next conversation
    )


def version_in(detail: str) -> str:
    """`cursor-agent 2026.10.01-e373342 (/path)` or `cursor-sdk 1.1.0, …`."""
    return detail.split()[1].rstrip(",") if len(detail.split()) > 1 else detail


async def _forget(client: "AsyncClient") -> None:
    """Deletes the conversations, with the copies that the agent keeps."""
    for entry in [entry async for entry in client.conversations()]:
        await client.delete_conversation(entry.id)


def _secrets(settings: Settings) -> list[str]:
    return [os.environ.get(name, "") for name in ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN")] + list(
        settings.agent_headers.values()
    )


def _keep(folder: Path, scratch: Path, verification: "Verification", result: "Verified", secrets: list[str]) -> None:

    shutil.copytree(scratch / "raw", folder, dirs_exist_ok=True)
    (folder / "verified.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    answers = {check: msgspec.to_builtins(answer) for check, answer in verification.answers.items()}
    (folder / "answers.json").write_text(json.dumps(answers, indent=2, ensure_ascii=False), "utf-8")
    redact(folder, secrets, {str(scratch): "/SCRATCH", str(Path.home()): "/HOME"})


def table_of(verified: "Verified") -> "Table":
    from rich.table import Table
    from rich.text import Text

    title = f"{verified.source} {verified.version}, {verified.platform}, {verified.date}: {verified.counted}"
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("", "check", "found"):
        table.add_column(column, overflow="fold")
    for result in verified.results:
        style = _STYLES[result.outcome]
        table.add_row(Text(_MARKS[result.outcome], style), result.check, Text(result.found))
    return table
