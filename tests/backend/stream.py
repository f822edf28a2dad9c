"""A stream between the runtime and the backend in; the program of its prompt, played by the backend, out.

Besides the steps of tests.agent.program, there are:

    {"native": "task", "args": {"steps": []}}   a sub-agent, which the runtime runs with a stream of its own
    {"todos": [["text", "PENDING"], …]}
    {"plan": "# Text", "name": "…"}
    {"question": "…"}
    {"web": "term"}                         a search by Cursor's servers
    {"usage": {"input_tokens": 5, …}}       of the turn; otherwise guessed
    {"checkpoint": true}                    the conversation so far is stored, as it is at the end of each turn
    {"fail": "code", "message": "…"}        title= detail= error= retryable=: with Cursor's ErrorDetails
    {"cut": true}                           the connection breaks
    {"stall": seconds}                      not even a heartbeat
    {"notice": "…"}                         a text that the server marks as its own
    {"summary": "…"}                        the conversation is compacted
    {"update": {…}}                         an `InteractionUpdate` as it stands

After `fail`, `cut` and `stall`, the runtime's next attempt goes on with what follows; if nothing does, it repeats what
led to them.
"""

import asyncio
import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import count
from typing import Any
from uuid import uuid4

from tests.agent.program import Progress, steps_of
from tests.agent.turn import Request as Prompt
from tests.backend.http import Exchange
from tests.backend.protobuf import Codec
from tests.backend.tools import Json, Outcome, Tool, tool_of

HEARTBEAT_SECONDS = 5.0
_BREAKS = ("fail", "cut", "stall")
_STEPS = frozenset(
    [*_BREAKS, "todos", "plan", "question", "web", "usage", "checkpoint", "notice", "summary", "update", "native"]
)


class Attempts:
    """What a run has come to: the runtime may try it again, with another stream."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.number = 0
        self.begin = 0  # of the part that is played

    def after_break(self) -> None:
        progress = self.progress
        progress.at += 1
        if progress.at == len(progress.steps):
            progress.at = self.begin
        self.begin = progress.at


class Failed(Exception):
    """The stream ends with an error."""

    def __init__(self, error: Json) -> None:
        self.error = error


class Broken(Exception):
    """The connection breaks."""


class Stream:
    """One `RunSSE` and the messages that the runtime appends to it."""

    def __init__(self, codec: Codec) -> None:
        self.request: asyncio.Future[Json] = asyncio.get_running_loop().create_future()  # the `AgentRunRequest`
        self.tools: Mapping[str, str] = {}
        self.conversation = ""
        self.context: Json | None = None  # what the runtime says about its machine
        self._codec = codec
        self._exchange: Exchange | None = None
        self._queues: dict[tuple[str, int], asyncio.Queue[Json]] = {}
        self._ids = count(1)
        self._waiting: dict[int, Json] = {}  # messages that overtook others
        self._next = 0
        self.is_cancelled = False

    # --- what the runtime sends ---------------------------------------------------------------------------

    def append(self, number: int, message: Json) -> None:
        self._waiting[number] = message
        while self._next in self._waiting:
            self._receive(self._waiting.pop(self._next))
            self._next += 1

    def _receive(self, message: Json) -> None:
        match message:
            case {"run_request": request}:
                if not self.request.done():
                    self.request.set_result(request)
            case {"exec_client_message": answer}:
                self._put("exec", answer.get("id", 0), answer)
            case {"exec_client_control_message": {"stream_close": about}}:
                self._put("exec", about.get("id", 0), {"closed": True})
            case {"exec_client_control_message": {"throw": about}}:
                self._put("exec", about.get("id", 0), {"throw": about})
                self._put("exec", about.get("id", 0), {"closed": True})
            case {"interaction_response": answer}:
                self._put("query", answer.get("id", 0), answer)
            case {"kv_client_message": answer}:
                self._put("kv", answer.get("id", 0), answer)
            case {"conversation_action": {"cancel_action": _}}:
                self.is_cancelled = True
            case _:
                pass  # heartbeats

    def _put(self, kind: str, id: int, message: Json) -> None:
        if (kind, id) in self._queues:
            self._queues[kind, id].put_nowait(message)

    # --- what the backend sends ---------------------------------------------------------------------------

    async def send(self, message: Json) -> None:
        assert self._exchange is not None
        await self._exchange.send(self._codec.encode("AgentServerMessage", message))

    async def update(self, update: Json) -> None:
        await self.send({"interaction_update": update})

    async def execute(self, kind: str, args: Json) -> list[Json]:
        id = next(self._ids)
        queue = self._queues["exec", id] = asyncio.Queue()
        await self.send({"exec_server_message": {"id": id, "exec_id": str(uuid4()), kind: args}})
        answers = []
        while "closed" not in (answer := await queue.get()):
            answers.append(answer)
            live = answer.get("shell_stream", {})
            if live.keys() & {"stdout", "stderr"}:  # Cursor sends a command's output back as it comes, without its call
                await self.update({"shell_output_delta": live})
        return answers

    async def ask(self, kind: str, query: Json) -> Json:
        id = next(self._ids)
        queue = self._queues["query", id] = asyncio.Queue()
        await self.send({"interaction_query": {"id": id, kind: query}})
        return await queue.get()

    async def store(self, data: bytes) -> bytes:
        """In the runtime's own store; returns the key."""
        id, key = next(self._ids), sha256(data).digest()
        queue = self._queues["kv", id] = asyncio.Queue()
        await self.send({"kv_server_message": {"id": id, "set_blob_args": {"blob_id": key, "blob_data": data}}})
        await queue.get()
        return key

    async def loaded(self, key: bytes) -> bytes:
        id = next(self._ids)
        queue = self._queues["kv", id] = asyncio.Queue()
        await self.send({"kv_server_message": {"id": id, "get_blob_args": {"blob_id": key}}})
        data: bytes = (await queue.get()).get("get_blob_result", {}).get("blob_data", b"")
        return data

    # --- a turn -------------------------------------------------------------------------------------------

    async def play(self, exchange: Exchange, runs: dict[str, Attempts]) -> None:
        """Raises `Failed`, `Broken`."""
        self._exchange = exchange
        request = await self.request
        self.conversation = request.get("conversation_id", "")
        heart = asyncio.get_running_loop().create_task(self._beat())
        try:
            turn = Turn(self, request, runs)
            await turn.prepare()
            await turn.play(heart)
        finally:
            heart.cancel()

    async def _beat(self) -> None:
        with suppress(OSError):
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                await self.update({"heartbeat": {}})


def prompt_of(request: Json) -> str:
    action = request.get("action", {}).get("user_message_action", {})
    text: str = action.get("user_message", {}).get("text", "")
    return text


class Turn:
    def __init__(self, stream: Stream, request: Json, runs: dict[str, Attempts]) -> None:
        self._stream, self._request = stream, request
        prompt = prompt_of(request)
        run = request.get("run_id", "") or str(uuid4())
        if run not in runs:
            runs[run] = Attempts(_progress(prompt))
        self._attempts = runs[run]
        self._prompt = prompt
        self._said: list[str] = []
        self._usage: Json = {"input_tokens": 1000 + len(prompt) // 4, "cache_read_tokens": 2048}
        self._model_call = str(uuid4())

    async def prepare(self) -> None:
        """Asks the runtime about its machine, as Cursor does: MCP servers are listed there."""
        answers = await self._stream.execute("request_context_args", {})
        found: Json = next((one["request_context_result"] for one in answers if "request_context_result" in one), {})
        context = self._stream.context = found.get("success", {}).get("request_context", {})
        offered = [*self._request.get("mcp_tools", {}).get("mcp_tools", []), *context.get("tools", [])]
        self._stream.tools = {tool["tool_name"]: tool["provider_identifier"] for tool in offered if "tool_name" in tool}

    async def play(self, heart: "asyncio.Task[None]") -> None:
        attempts = self._attempts
        attempts.number += 1
        progress = attempts.progress
        while progress.at < len(progress.steps):
            step = progress.steps[progress.at]
            if any(name in step for name in _BREAKS):
                attempts.after_break()
                await self._break(step, heart)
            await self._step(step, progress)
            progress.at += 1
        await self._checkpoint()
        self._usage.setdefault("output_tokens", 10 + len("".join(self._said)) // 4)
        await self._stream.update({"turn_ended": self._usage})

    async def _break(self, step: Mapping[str, Any], heart: "asyncio.Task[None]") -> None:
        match step:
            case {"cut": _}:
                raise Broken
            case {"stall": int() | float() as seconds}:
                heart.cancel()
                await asyncio.sleep(seconds)
                raise Broken
            case _:
                raise Failed(failure(self._stream._codec, step))

    async def _step(self, step: Mapping[str, Any], progress: Progress) -> None:
        stream = self._stream
        match step:
            case {"say": str(text)}:
                await self._say(progress.fill(text))
            case {"think": str(text)}:
                for piece in re.findall(r".{1,20}", progress.fill(text), re.DOTALL):
                    await stream.update({"thinking_delta": {"text": piece}})
                await stream.update({"thinking_completed": {"thinking_duration_ms": 7}})
            case {"pause_ms": int() | float() as milliseconds}:
                await asyncio.sleep(milliseconds / 1000)
            case {"usage": dict(usage)}:
                self._usage = usage
            case {"checkpoint": _}:
                await self._checkpoint()
            case {"notice": str(text)}:
                await stream.update({"text_delta": {"text": text, "is_server_notice": True}})
            case {"summary": str(text)}:
                await stream.update({"summary_started": {}})
                await stream.update({"summary": {"summary": text}})
                await stream.update({"summary_completed": {}})
            case {"update": dict(update)}:
                await stream.update(update)
            case {"todos": list(todos)}:
                await self._todos(todos)
            case {"plan": str(plan)}:
                await self._plan(plan, step.get("name", "A plan"))
            case {"question": str(text)}:
                asked = {"id": "q", "prompt": text, "options": [{"id": "a", "label": "A"}]}
                args = {"title": text, "questions": [asked]}
                await self._stream.ask("ask_question_interaction_query", {"args": args, "tool_call_id": str(uuid4())})
            case {"web": str(term)}:
                await self._stream.ask("web_search_request_query", {"args": {"search_term": term}})
            case {"list": _}:
                await self._say(", ".join(sorted(stream.tools)))
            case _:
                await self._calls(progress)

    async def _say(self, text: str) -> None:
        """In words, as models do."""
        for word in re.findall(r"\s*\S+|\s+$", text):
            self._said.append(word)
            await self._stream.update({"text_delta": {"text": word}})
            await self._stream.update({"token_delta": {"tokens": 1}})

    # --- tools --------------------------------------------------------------------------------------------

    async def _calls(self, progress: Progress) -> None:
        """All started first, then made at once; they end when they end."""
        progress.begun = progress.at
        started: list[tuple[int, str, Tool]] = []
        for number in progress.open(progress.at):
            tool = tool_of(progress.filled(progress.calls[number]), self._stream)
            if tool is None:
                name = progress.calls[number]["call"]
                progress.results[number] = f"no tool {name}"
                await self._say(f"no tool {name}")
            else:
                id = f"call-{uuid4()}"
                await self._started(id, tool.kind, tool.args)
                started.append((number, id, tool))
        async with asyncio.TaskGroup() as group:
            for number, id, tool in started:
                group.create_task(self._carry_out(progress, number, id, tool))
        self._model_call = str(uuid4())

    async def _carry_out(self, progress: Progress, number: int, id: str, tool: Tool) -> None:
        outcome = await tool.work(self._stream, id)
        progress.results[number] = outcome.text
        await self._completed(id, tool.kind, tool.args, outcome)

    async def _started(self, id: str, kind: str, args: Json) -> None:
        about = {"call_id": id, "model_call_id": self._model_call}
        await self._stream.update({"partial_tool_call": {**about, "tool_call": {kind: {"args": {}}}}})
        await self._stream.update({"tool_call_started": {**about, "tool_call": {kind: {"args": args}}}})

    async def _completed(self, id: str, kind: str, args: Json, outcome: Outcome) -> None:
        call = {kind: {"args": args, "result": outcome.result}}
        about = {"call_id": id, "model_call_id": self._model_call}
        await self._stream.update({"tool_call_completed": {**about, "tool_call": call}})

    async def _todos(self, todos: list[list[str]]) -> None:
        id = f"call-{uuid4()}"
        items = [{"id": str(at), "content": text, "status": status} for at, (text, status) in enumerate(todos, 1)]
        await self._started(id, "update_todos_tool_call", {"todos": items})
        result = {"success": {"todos": items, "total_count": len(items)}}
        await self._completed(id, "update_todos_tool_call", {"todos": items}, Outcome(result, ""))

    async def _plan(self, plan: str, name: str) -> None:
        id = f"call-{uuid4()}"
        args = {"plan": plan, "name": name, "overview": "An overview"}
        await self._started(id, "create_plan_tool_call", args)
        await self._stream.ask("create_plan_request_query", {"args": args, "tool_call_id": id})
        await self._completed(id, "create_plan_tool_call", args, Outcome({"success": {}}, ""))

    # --- what is kept of a conversation ---------------------------------------------------------------------

    async def _checkpoint(self) -> None:
        """The turn so far, in the runtime's store; the next request has it in its `conversation_state`."""
        stream = self._stream
        codec = stream._codec
        user = await stream.store(codec.encode("UserMessage", {"text": self._prompt, "message_id": str(uuid4())}))
        said = await stream.store("".join(self._said).encode())
        turn = {"agent_conversation_turn": {"user_message": user, "steps": [said]}}
        key = await stream.store(codec.encode("ConversationTurnStructure", turn))
        turns = self._request.get("conversation_state", {}).get("turns", [])
        await stream.send({"conversation_checkpoint_update": {"turns": [*turns, key]}})


def _progress(prompt: str) -> Progress:
    asked = Prompt(prompt)
    if asked.name != "program":
        return Progress([{"say": prompt}])
    progress = Progress(steps_of(asked.body, _STEPS))
    progress.catch_up(prompt, asked.end)
    return progress


def failure(codec: Codec, step: Mapping[str, Any]) -> Json:
    """An error of Connect, perhaps with Cursor's details."""
    error = {"code": step["fail"], "message": step.get("message", "")}
    if "title" not in step and "detail" not in step:
        return error
    details = {
        "error": step.get("error", "UNSPECIFIED"),
        "details": {
            "title": step.get("title", ""),
            "detail": step.get("detail", ""),
            **({"is_retryable": step["retryable"]} if "retryable" in step else {}),
        },
    }
    value = base64.b64encode(codec.encode("ErrorDetails", details)).decode().rstrip("=")
    return {**error, "details": [{"type": "aiserver.v1.ErrorDetails", "value": value}]}
