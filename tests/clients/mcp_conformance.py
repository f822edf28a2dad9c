"""A proxy in front of `/mcp` for the conformance suite, which calls tools that a server is to offer for it.

It calls ours instead, with a prompt that makes the stand-in agent do what the suite expects. All else passes unchanged.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeAlias

import httpx2

Json: TypeAlias = dict[str, Any]
_NOT_FORWARDED = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive")


def _prompt(name: str, *steps: Json) -> str:
    return f"{name}\nstandin: program\n---\n{json.dumps(steps)}\n--- end"


def _run(prompt: str) -> tuple[str, Json]:
    return "run", {"prompt": prompt}


def _ask(prompt: str) -> tuple[str, Json]:
    return "ask", {"prompt": prompt}


def _slow(arguments: Json) -> tuple[str, Json]:
    seconds = float(arguments.get("seconds", 1))
    return _ask(_prompt(str(arguments.get("label")), {"pause_ms": 1000 * seconds}, {"say": "Computed."}))


_SHELL = [{"native": "shell", "args": {"command": f"expr 20 + {number}"}} for number in (1, 2)]
_QUESTION = "standin: question"

# What the suite calls, as a call of ours.
TOOLS: dict[str, Callable[[Json], tuple[str, Json]]] = {
    "slow_compute": _slow,
    "failing_job": lambda _: _ask("standin: crash"),
    "confirm_delete": lambda given: _run(f"{given.get('filename')} {_QUESTION}"),
    "multi_input": lambda _: _run(_prompt("both", {"parallel": _SHELL}, {"say": "Done."})),
    "test_input_required_result_elicitation": lambda _: _run(_QUESTION),
    "test_input_required_result_request_state": lambda _: _run(_QUESTION),
    "test_input_required_result_multi_round": lambda _: _run(_prompt("rounds", *_SHELL, {"say": "Done."})),
    "test_input_required_result_tampered_state": lambda _: _run(_QUESTION),
    "test_input_required_result_capabilities": lambda _: _run(_QUESTION),
    "test_simple_text": lambda _: _ask("standin: hello"),
    "test_error_handling": lambda _: _ask("standin: crash"),
    "test_tool_with_progress": lambda _: _run("standin: tools"),
    "test_elicitation": lambda _: _run(_QUESTION),
    "test_streaming_elicitation": lambda _: _run(_QUESTION),
    "test_logging_tool": lambda _: _ask("standin: hello"),
    "test_reconnection": lambda _: _run(_prompt("again", {"say": "Before. "}, {"pause_ms": 500}, {"say": "After."})),
}


@contextmanager
def conformance_proxy(url: str) -> Iterator[str]:
    """The address of one in front of the gateway at `url`."""
    with httpx2.Client(base_url=url, timeout=60) as http:
        done = http.post("/v1/chat", json={"message": "hello", "mayAsk": True}).json()  # its agent is then warm
        # A tool without an agent.
        tools = {**TOOLS, "greet": lambda _: ("status", {"runId": done["id"]})}

        class Proxy(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (OSError, httpx2.HTTPError):  # one of the two has gone
                    self.close_connection = True

            def do_POST(self) -> None:
                self._forward(self.rfile.read(int(self.headers["content-length"])))

            def do_GET(self) -> None:
                self._forward(b"")

            do_DELETE = do_GET  # noqa: N815

            def _forward(self, body: bytes) -> None:
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_FORWARDED}
                body, headers = _translated(body, headers, tools)
                with http.stream(self.command, "/mcp", content=body or None, headers=headers) as reply:
                    self.send_response(reply.status_code)
                    for name, value in reply.headers.items():
                        if name.lower() not in _NOT_FORWARDED:
                            self.send_header(name, value)
                    if "event-stream" in reply.headers.get("content-type", ""):
                        self._stream(reply)
                    else:
                        whole = reply.read()
                        if reply.status_code != 204:
                            self.send_header("content-length", str(len(whole)))
                        self.end_headers()
                        self.wfile.write(whole)

            def _stream(self, reply: httpx2.Response) -> None:
                """In chunks: Node fails on a stream that ends with its connection, if it reads slowly."""
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for piece in reply.iter_raw():
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            server.server_close()


def _translated(
    body: bytes, headers: dict[str, str], tools: dict[str, Callable[[Json], tuple[str, Json]]]
) -> tuple[bytes, dict[str, str]]:
    try:
        message = json.loads(body)
        params = message["params"]
        name = params["name"]
    except (ValueError, KeyError, TypeError):
        return body, headers
    if message.get("method") != "tools/call" or name not in tools:
        return body, headers
    params["name"], params["arguments"] = tools[name](params.get("arguments") or {})
    for header, value in headers.items():
        if header.lower() == "mcp-name" and value.strip() == name:
            headers = {**headers, header: params["name"]}
    return json.dumps(message).encode(), headers
