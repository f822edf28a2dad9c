"""What the agent says and does in; messages of a run's stream, as the bridge sends them, out.

All is told twice, as deltas and as messages of the same size; the deltas only where they were asked for. What the real
runtime sends is compared in tests/backend/test_standin.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.agent import bridge_shapes
from tests.agent.emitter import Call, Emitter, Record, joined

_UNTOLD = frozenset(
    {"askQuestion", "getMcpTools", "switchMode", "webFetch", "webSearch"}
)  # the protocol has no shape for it

Put = Callable[[Record], None]


class BridgeEmitter(Emitter):
    def __init__(self, put: Put, warn: Callable[[str], None], session: str, run: str, model: str) -> None:
        super().__init__(lambda data: None, warn, session, format="stream-json", partial=True)
        self.usage: Record | None = None
        self._put, self._run, self._model_id = put, run, model

    # what is sent

    def update(self, type: str, **fields: object) -> None:
        self._put({"interactionUpdate": {"type": type, "update": {"type": type, **fields}}})

    def message(self, type: str, **fields: object) -> None:
        about: Record = {"type": type, "agent_id": self.session, "run_id": self._run, **fields}
        self._put({"sdkMessage": {"type": type, "message": about}})

    def status(self, status: str, message: str = "") -> None:
        self.message("status", status=status, **({"message": message} if message else {}))

    def end(self, status: str, **about: Any) -> None:
        """The run's result, and that nothing follows it."""
        wire = f"RUN_LIFECYCLE_STATUS_{status}"
        ids: Record = {"agentId": self.session, "runId": self._run, "status": wire}
        figures: Record = {} if self.usage is None else {"usage": {k: str(v) for k, v in self.usage.items()}}
        nested = {**ids, "result": joined(self.said), "durationMs": "5", **figures, **about}
        code: Record = {"errorCode": about["errorCode"]} if about.get("errorCode") else {}
        self._put({"result": {**ids, **code, "result": {k: v for k, v in nested.items() if v != ""}}})
        self._put({"done": {}})

    # what scenarios use

    def begin(self, cwd: str, key_source: str, model: str, prompt: str) -> None:
        self.status("RUNNING")

    def say(self, delta: str) -> None:
        self._called()
        self.said += delta
        self.update("text-delta", text=delta)
        self.message("assistant", message={"role": "assistant", "content": [{"type": "text", "text": joined(delta)}]})
        self.update("token-delta", tokens=1)

    def think(self, delta: str) -> None:
        self._called()
        self.update("thinking-delta", text=delta)
        self.message("thinking", text=joined(delta))

    def stop_thinking(self) -> None:
        self.update("thinking-completed", thinkingDurationMs=7)
        self.message("thinking", text="", thinking_duration_ms=7)

    def start(self, call: Call) -> None:
        if call.tool in _UNTOLD:
            return
        call.model_call = self._called()
        args = bridge_shapes.arguments(call.tool, call.args)
        about: Record = {"callId": call.id, "modelCallId": call.model_call}
        for update, known in (("partial-tool-call", bridge_shapes.empty(args)), ("tool-call-started", args)):
            self.update(update, **about, toolCall={"type": call.tool, "args": known})
            self.message("tool_call", call_id=call.id, name=call.tool, status="running", args=known)

    def complete(self, call: Call, result: Record) -> None:
        if call.tool in _UNTOLD:
            return
        args = bridge_shapes.arguments(call.tool, call.args)
        reply = bridge_shapes.result(call.tool, result)
        tool_call: Record = {"type": call.tool, "args": args, "result": reply}
        call.model_call = call.model_call or self._called()
        for kind, output in bridge_shapes.live_output(call.tool, result).items():
            self.update("shell-output-delta", event={"case": kind, "value": {"data": output}})
        self.update("tool-call-completed", callId=call.id, modelCallId=call.model_call, toolCall=tool_call)
        self.message("tool_call", call_id=call.id, name=call.tool, status="completed", args=args, result=reply)
        self._model_call = ""

    def reject(self, call: Call, rejected: Record) -> None:
        self.complete(call, {"rejected": rejected})

    def ask(self, name: str, query: Record, answer: Record) -> None:
        """The bridge tells nothing of it."""

    def lose_connection(self, attempt: int) -> None:
        """The bridge tells nothing of it."""

    def reconnect(self) -> None:
        """The bridge tells nothing of it."""

    def retry(self, attempt: int, *, resumes: bool) -> None:
        """The bridge tells nothing of it."""

    def finish(self, usage: Record | None, *, end: bytes = b"\n") -> None:
        if usage is not None:
            total = int(str(usage["inputTokens"])) + int(str(usage["outputTokens"]))
            self.usage = {**usage, "totalTokens": total}
            self.update("turn-ended", usage=self.usage)
            self.message("usage", usage=self.usage)
        else:
            self.update("turn-ended")
        self.status("FINISHED")
        self.end("FINISHED")

    def end_text(self) -> None:
        """All of it has been told."""

    def fail_result(self, message: str) -> None:
        self.status("ERROR", message)
        self.end("ERROR", errorMessage=message)

    def record(self, record: Mapping[str, object]) -> None:
        """Noise of the CLI's is noise here, too, in this protocol's form."""
        fields = {name: value for name, value in record.items() if name != "type"}
        self.update(str(record["type"]), **fields)

    def raw(self, data: bytes) -> None:
        """A frame is JSON, or there is no stream."""
