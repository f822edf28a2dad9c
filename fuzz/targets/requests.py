"""Bodies of requests: any bytes are a request that can be carried out, or an error of the caller's."""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from cursor_gateway.dialects.chat.dialect import read_request
from cursor_gateway.dialects.documents.request import (
    answers_of,
    offer_of,
    read_answer,
    read_chat_request,
    results_of,
)
from cursor_gateway.dialects.errors import encode_error
from cursor_gateway.errors import RequestError
from cursor_gateway.model.agent_events import CallerAwaited, CallerToolAnswered, CallerToolAsked
from cursor_gateway.model.caller_tools import CallerCall, Offer, preamble
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    PlanMetadata,
    make_document,
)
from cursor_gateway.model.messages import Image, UserMessage, read_image
from cursor_gateway.prompting.fingerprints import Scope, fingerprint
from cursor_gateway.prompting.prompt import render
from cursor_gateway.prompting.replies import answers_message, plan_message
from cursor_gateway.prompting.structured import (
    Fit,
    JsonObject,
    JsonSchema,
    Misfit,
    check,
    check_schema,
    extract_json,
    instructions,
    repair_prompt,
    violation,
)
from cursor_gateway.sources.cursor.native_requests import translate
from cursor_gateway.sources.cursor.records import read_arguments
from cursor_gateway.sources.cursor.tools import read_call, read_named
from cursor_gateway.sources.sdk.requests import content_of, definitions
from fuzz.target import Target, assert_flat, text_of
from tests.laws.laws import assemble, assert_the_stream_folds_to_the_response, assert_well_formed

T = TypeVar("T")


def typed(read: Callable[[], T]) -> T | None:
    """None where it is refused, as a caller can understand it."""
    try:
        return read()
    except RequestError as error:
        failure = error.failure()
        assert 400 <= failure.status < 500
        assert failure.message.isprintable() or all(char.isprintable() or ord(char) > 0xA0 for char in failure.message)
        json.loads(encode_error(failure))
        return None


# --- the documents dialect --------------------------------------------------------------------------


def chat_request(data: bytes) -> None:
    request = typed(lambda: read_chat_request(data))
    if request is None:
        return
    msgspec.json.encode(request)
    render([UserMessage(request.message)], b"").encode()
    offer = typed(lambda: offer_of(request))
    if offer is not None:
        _use(offer)
    images = typed(lambda: [read_image(uri, f"images[{place}]") for place, uri in enumerate(request.images)])
    for image in images or ():
        _use_image(image)


def _use(offer: Offer) -> None:
    """What becomes of the caller's tools."""
    preamble(offer, "gateway").encode()
    msgspec.json.encode(definitions(offer.tools))
    for tool in offer.tools:
        assert_flat(tool.parameters)
        CallerCall("c", tool.name, {"a": tool.parameters}).key().encode()


def _use_image(image: Image) -> None:
    name = image.name
    assert "/" not in name
    assert image.data


def _chat_seeds() -> Iterator[bytes]:
    png = "data:image/png;base64,iVBORw0KGgo="
    tool = {"name": "get", "description": "d", "parameters": {"type": "object", "properties": {"a": {"enum": []}}}}
    yield _json(message="Hi")
    yield _json(message="Hi", conversationId="conv_1", model="auto", mode="plan", stream=True, include=["thinking"])
    yield _json(message="Hi", images=[png], fences="inline", workspace="/w", source="cli", whenClientLeaves="finish")
    yield _json(message="Hi", tools=[tool], toolChoice={"name": "get"}, parallelToolCalls=False, mayAsk=False)
    yield _json(message="Hi", tools=[{"function": tool}, {"function": {**tool, "name": "b"}}], toolChoice="required")
    yield _json(message="Hi", toolChoice="none", unknown=1)
    yield b'\xef\xbb\xbf{"message": "\\ud83d \\ud83d\\ude00", "message": "x", "model": ""}'
    yield b'{"message": "x", "tools": ' + b"[" * 5000
    yield b'{"message": "x", "tools": [{"name": "a", "parameters": {"a": %b}}]}' % (b"[" * 90 + b"]" * 90)


def answer_request(data: bytes) -> None:
    request = typed(lambda: read_answer(data))
    if request is None:
        return
    if request.tool_results is not None:
        results = typed(lambda: results_of(request.tool_results or ()))
        for result in (results or {}).values():
            assert_flat(content_of(result))
            events = assemble([CallerToolAsked(_CALL), CallerAwaited(("c",)), CallerToolAnswered("c", result)])
            assert_well_formed(events)
            assert_the_stream_folds_to_the_response(events)
    if request.answers is not None:
        reply = typed(lambda: answers_message(_ASKED, answers_of(request.answers or ())))
        assert reply is None or reply.encode()
    if request.plan is not None:
        assert plan_message(_ASKED, request.plan, request.text).encode()


_CALL = CallerCall("c", "get", {"a": 1})
_ASKED = [
    make_document(
        "doc_001",
        1,
        None,
        ClarificationMetadata(
            questions=[ClarificationQuestion(id="q", text="Which?", options=[ClarificationOption(id="a", label="A")])]
        ),
    ),
    make_document("doc_002", 2, "# Plan", PlanMetadata(title="Plan", overview="o", todos=[])),
]


def _answer_seeds() -> Iterator[bytes]:
    parts = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}}]
    yield _json(toolResults=[{"toolCallId": "c", "content": "x", "isError": True}], stream=True)
    yield _json(toolResults=[{"toolCallId": "c", "content": parts}, {"toolCallId": "d", "content": {"a": [1, None]}}])
    yield _json(toolResults=[{"toolCallId": "c", "content": [{"type": "text", "text": 7}]}])
    yield _json(answers=[{"questionId": "q", "selectedOptionIds": ["a"], "text": "x"}, {"questionId": "r"}])
    yield _json(plan="accept", text="Go.", whenClientLeaves="cancel")
    yield _json(plan="reject", answers=[])
    yield b'{"toolResults": [{"toolCallId": "c", "content": ' + b"[" * 5000


# --- OpenAI's dialect -------------------------------------------------------------------------------


def openai_request(data: bytes) -> None:
    request = typed(lambda: read_request(data))
    if request is None:
        return
    render(request.messages, b"").encode()
    fingerprint(Scope(owner="o", workspace="/w", mode="agent"), request.messages)
    if request.format is not None:
        instructions(request.format).encode()
    if request.offer is not None:
        _use(request.offer)
    for image in request.images:
        _use_image(image)
        assert 0 <= image.message < len(request.messages)
    assert request.max_tokens is None or request.max_tokens >= 1
    assert all(request.stop)


def _openai_seeds() -> Iterator[bytes]:
    user = {"role": "user", "content": "Hi", "name": "n"}
    function = {"name": "get", "arguments": '{"a": "\\ud800"}'}
    call = {"id": "c", "type": "function", "function": function}
    png = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    reply = [
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "developer", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, png]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": "no"},
        {"role": "tool", "tool_call_id": "c", "content": [png]},
        {"role": "assistant", "function_call": function},
        {"role": "function", "name": "get", "content": "x"},
    ]
    tool = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}, "strict": True}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"pattern": "("}}}
    yield _json(messages=[user], model="auto", stream=True, stream_options={"include_usage": True})
    yield _json(messages=reply, max_tokens=3, max_completion_tokens=5, stop=["a", "b"], temperature=0.5, seed=1)
    yield _json(messages=[user], tools=[tool], tool_choice={"type": "function", "function": {"name": "get"}})
    yield _json(messages=[user], tools=[tool], tool_choice="required", parallel_tool_calls=False, n=1, user="u")
    yield _json(messages=[user], response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}})
    yield _json(messages=[user], response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    yield _json(messages=[user], response_format={"type": "json_object"}, cursor={"mode": "ask", "include": ["raw"]})
    yield _json(messages=[user], n=2, logprobs=True, modalities=["audio"], functions=[{}], cursor={"x": 1})
    yield b'{"messages": [{"role": "user", "content": "x"}], "metadata": ' + b'{"a":' * 1500
    yield b'{"messages": [{"role": "user", "content": "x"}], "metadata": {"a": %b}}' % (b"[" * 90 + b"]" * 90)


# --- answers that must be JSON ----------------------------------------------------------------------


def schemas(data: bytes) -> None:
    """An object with `schema` and `answer`; what is none is an answer."""
    asked = _object(data)
    if asked is None or not isinstance(asked.get("schema"), dict):
        _assert_found(text_of(data))
        return
    schema, answer = asked["schema"], asked.get("answer")
    answer = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    _assert_found(answer)
    if typed(lambda: _checked(schema)) is None:
        return
    format = JsonSchema(schema, "name", "description", strict=True)
    instructions(format).encode()
    match check(answer, format):
        case Fit(text=text):
            assert not violation(json.loads(text), schema)
        case Misfit() as misfit:
            repair_prompt(misfit, format).encode("utf-8", "surrogatepass")
            assert len(misfit.reason) < 1000


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    check_schema(schema)
    return schema


def _assert_found(answer: str) -> None:
    found = extract_json(answer)
    if found is not None:
        assert found in answer
        json.loads(found)
    match check(answer, JsonObject()):
        case Fit(text=text):
            assert isinstance(json.loads(text), dict)
        case Misfit(reason=reason):
            assert reason


def _schema_seeds() -> Iterator[bytes]:
    person = {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "tags": {"type": "array", "items": {"enum": [1]}}},
        "required": ["name"],
        "additionalProperties": False,
    }
    tree = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
    odd = {"$id": "x:y", "anyOf": [{"$ref": "#"}], "patternProperties": {"(": {}}, "$dynamicRef": "#a", "format": "x"}
    yield _json(schema=person, answer='```json\n{"name": "x", "tags": [1]}\n```')
    yield _json(schema=tree, answer="Here: [[], [[]]] it is.")
    yield _json(schema=odd, answer="{}")
    yield _json(schema={"$anchor": "a", "if": {"const": 1}, "then": False, "not": {}, "$schema": 7}, answer=[1])
    yield _json(schema={"uniqueItems": True, "multipleOf": 0.1, "dependentSchemas": {"a": True}}, answer="1e400")
    yield b'Code: `{x}` and {"a": [1, {"b": NaN}]} or ```\n[1, 2]\n``` {"c": "\\ud800"}'


# --- the agent's own requests, for the caller's tools -------------------------------------------------


def native_requests(data: bytes) -> None:
    """An object with the agent's `tool` and `args`, and the caller's `tools`, as they are offered."""
    asked = _object(data)
    if asked is None or data.count(b"{") + data.count(b"[") > 400:
        return  # what is nested so deeply no decoder lets through
    request = typed(lambda: read_chat_request(_json(message="x", tools=asked.get("tools"))))
    offer = None if request is None else typed(lambda: offer_of(request))
    if offer is None:
        return
    tool, args = asked.get("tool"), asked.get("args")
    if not isinstance(tool, str):
        return
    for action in (read_call(tool, args), read_named(tool, read_arguments(args))):
        for scratch in ("", "/w/scratch"):
            found = translate(action, offer.tools, scratch=scratch)
            if found is not None:
                used, arguments = found
                assert not violation(arguments, used.parameters), "an invalid call"
                CallerCall("c", used.name, arguments).key()


def _native_seeds() -> Iterator[bytes]:
    def tool(name: str, *required: str, **properties: Any) -> dict[str, Any]:
        return {"name": name, "parameters": {"properties": properties, "required": list(required)}}

    text = {"type": "string"}
    bash = tool("bash", "command", command=text, description=text, cwd={"anyOf": [text, {"type": "null"}]})
    read = tool("read_file", "path", path={"type": "array", "items": text}, offset={"type": "integer"})
    grep = tool("grep", "pattern", pattern={"$ref": "#/$defs/p"}, **{"-i": {"type": "boolean"}})
    grep["parameters"]["$defs"] = {"p": text}
    edit = tool("edit", "path", "edits", path=text, edits={"type": "array"})
    write = tool("write", "path", "content", path=text, content=text)
    tools = [bash, read, grep, edit, write, tool("glob", pattern=text, path=text), tool("ls", path=text)]
    yield _json(tool="shell", args={"command": "ls -l", "workingDirectory": "/w/scratch/a"}, tools=tools)
    yield _json(tool="read", args={"path": "/w/scratch/a.py", "offset": 3, "limit": "7"}, tools=tools)
    yield _json(tool="grep", args={"pattern": "x", "path": ".", "caseInsensitive": True, "glob": "*.py"}, tools=tools)
    yield _json(tool="edit", args={"path": "a", "oldText": "x", "newText": "y"}, tools=tools)
    yield _json(tool="edit", args={"path": "a", "streamContent": "x"}, tools=tools)
    yield _json(tool="write", args={"path": "a", "fileText": "x"}, tools=tools)
    yield _json(tool="glob", args={"globPattern": "*"}, tools=tools)
    yield _json(tool="ls", args={"path": "/w/scratch"}, tools=tools)
    yield _json(tool="delete", args={"path": "a"}, tools=[tool("rm", "file", file=text)])
    none = {"name": "bash", "parameters": {"properties": {"command": text}, "maxProperties": 0}}
    yield _json(tool="shell", args={"command": "ls"}, tools=[none])
    yield _json(tool="mcp", args={"name": "gateway-x", "toolName": "x", "args": {"a": 1}}, tools=[tool("x", a={})])


def _object(data: bytes) -> dict[str, Any] | None:
    """As `read_json` reads what anybody sends."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


_BODY = "Any body is a valid request, or a 4xx error that says what is wrong."

TARGETS = [
    Target("chat_request", _BODY, chat_request, _chat_seeds, "json", 8192),
    Target("answer_request", _BODY, answer_request, _answer_seeds, "json", 8192),
    Target("openai_request", _BODY, openai_request, _openai_seeds, "json", 8192),
    Target(
        "schemas",
        "Any schema is accepted or rejected; what matches it is valid; extracted JSON is part of the answer.",
        schemas,
        _schema_seeds,
        "json",
        2048,
    ),
    Target(
        "native_requests",
        "Whatever the agent requests and the caller offers, every resulting call is valid.",
        native_requests,
        _native_seeds,
        "json",
    ),
]
