"""Every path with every method, and paths that are nearly right: each is told what there is."""

import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, cast

import httpx2
import msgspec
import pytest

from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.dialects.base import Dialect
from cursor_gateway.keys import KeyRing
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.api_page import api_page
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.openapi import openapi_document
from cursor_gateway.server.operations import OperationEndpoints
from cursor_gateway.settings import Settings
from tests.gateways import RunningGateway
from tests.server.conftest import chat, standin
from tests.server.edges import CLOSE, JSON, exchanged, request

DIALECTS = dialects_of(Settings())
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PATHS: dict[str, set[str]] = {
    path: {method.upper() for method in operations if method.upper() in METHODS}
    for path, operations in openapi_document("1", DIALECTS).get("paths", {}).items()
    if not re.match(r"/v1/(?:logins?|devices)\b", path)  # only of a gateway that is shared: tests/server/test_logins.py
} | {"/": {"GET"}, "/docs": {"GET"}, "/docs.css": {"GET"}, "/openapi.json": {"GET"}, "/page/{name}": {"GET"}}


def _allowed(methods: set[str]) -> set[str]:
    return methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.quick_cases(29)
def test_a_path_says_which_methods_it_knows(gateway: RunningGateway, path: str, method: str) -> None:
    allowed = _allowed(PATHS[path])
    target = re.sub(r"\{\w+\}", "none", path)
    reply = exchanged(gateway, request(method, target, JSON, CLOSE), has_body=method != "HEAD")
    if method == "OPTIONS":
        assert reply.status == 204
    elif method in allowed:
        assert reply.status != 405
        return
    else:
        assert reply.status == 405
    if reply.body and path.startswith("/v1/messages"):
        assert json.loads(reply.body)["error"]["type"] == "invalid_request_error"
    elif reply.body and path.startswith("/v1/ai-sdk"):
        assert reply.headers["allow"] in reply.body.decode()  # useChat shows the body as it is
    elif reply.body:
        assert reply.error["code"] == "method_not_allowed"
    if reply.body and not path.startswith("/v1/ai-sdk"):
        assert reply.headers["allow"] in json.loads(reply.body)["error"]["message"]
    assert set(reply.headers["allow"].split(", ")) == allowed


MEANT = {
    "/v1/models/": "/v1/models",
    "/v1//models": "/v1/models",
    "//v1/models": "/v1/models",
    "/models": "/v1/models",
    "/chat/completions": "/v1/chat/completions",
    "/v1/v1/chat/completions": "/v1/chat/completions",
    "/v1/model": "/v1/models",
    "/v1/chat%2Fcompletions": None,  # one part, whose name has a slash
    "/v1%2Fmodels": None,
    "/health/": "/health",
    "/healthz": "/health",
    "/v1/chat/": "/v1/chat",
    "/v1/chat//events": None,
    "/v1/chat/a/b/c": None,
    "/page/": None,
    "/page/a/b": None,
    "/v1/embeddings": None,
    "/v1": None,
    "/%00": None,
    "/..%2f..%2fetc/passwd": None,
}


@pytest.mark.parametrize(("target", "meant"), MEANT.items())
def test_for_a_path_that_is_nearly_right_the_right_one_is_named(
    gateway: RunningGateway, target: str, meant: str | None
) -> None:
    for method in ("GET", "POST"):
        reply = exchanged(gateway, request(method, target, JSON, CLOSE))
        assert (reply.status, reply.error["code"]) == (404, "not_found")
        said = reply.error["message"]
        assert said.startswith(f"No endpoint at {target}; ")
        assert said.endswith("see /docs for the list.")
        if meant is not None:
            assert f"did you mean {meant}?" in said


def test_a_part_of_a_path_may_be_written_in_any_way(gateway: RunningGateway, http: httpx2.Client) -> None:
    assert exchanged(gateway, request("GET", "/v1/%6Dodels", CLOSE)).status == 200
    chat_id = chat(http, standin("text"))["id"]
    assert http.get(f"/v1/chat/%{ord(chat_id[0]):02X}{chat_id[1:]}").json()["id"] == chat_id


@pytest.mark.parametrize("target", ["/v1/models/some%2Fmodel", "/v1/models/some/model"])
def test_a_models_name_may_have_slashes(gateway: RunningGateway, target: str) -> None:
    reply = exchanged(gateway, request("GET", target, CLOSE))
    assert (reply.status, reply.error["code"]) == (404, "model_not_found")
    assert "'some/model'" in reply.error["message"]


def test_a_whole_address_is_a_target_too_and_its_host_is_the_one_that_counts(gateway: RunningGateway) -> None:
    assert exchanged(gateway, request("GET", "http://127.0.0.1:8787/health?x=1", CLOSE)).status == 200
    assert exchanged(gateway, request("GET", "http://localhost", CLOSE)).status == 200
    assert exchanged(gateway, request("GET", "http://evil.example/health", CLOSE)).error["code"] == "forbidden"


def test_head_is_get_without_the_body(gateway: RunningGateway) -> None:
    for target in ("/health", "/v1/models", "/v1/models/none", "/nothing"):
        got = exchanged(gateway, request("GET", target, CLOSE))
        result = exchanged(gateway, request("HEAD", target, CLOSE), has_body=False)
        varies = ("x-request-id", "request-id", "date")
        assert result.status == got.status
        assert {name: value for name, value in result.headers.items() if name not in varies} == {
            name: value for name, value in got.headers.items() if name not in varies
        }


def test_a_key_opens_no_path_by_another_spelling(gateway: RunningGateway) -> None:
    """What needs no key is told by its path; no other way of writing may lead from there to something else."""
    for target in ("/page/..%2Fv1%2Fruns", "/page/%2e%2e/v1/runs", "/health%2F..%2Fv1%2Fruns", "/docs;/v1/runs"):
        assert exchanged(gateway, request("GET", target, CLOSE)).status == 404


def test_errors_of_the_edge_are_json_for_every_caller(gateway: RunningGateway) -> None:
    for accept in ("text/html", "text/event-stream", "*/*"):
        reply = exchanged(gateway, request("GET", "/nothing", f"Accept: {accept}", CLOSE))
        assert json.loads(reply.body)["error"]["code"] == "not_found"


@pytest.mark.parametrize("host", ["localhost:8787", "127.0.0.1", "[::1]:99"])
def test_the_page_of_the_api_names_the_address_that_it_was_found_at(gateway: RunningGateway, host: str) -> None:
    shown = exchanged(gateway, request("GET", f"http://{host}/docs", CLOSE)).body.decode()
    assert shown == api_page(openapi_document(version("cursor-gateway"), DIALECTS), f"http://{host}")


def test_the_description_of_the_api_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(version: str, dialects: Sequence[Dialect]) -> dict[str, Any]:
        made.append(version)
        return openapi_document(version, dialects)

    monkeypatch.setattr("cursor_gateway.server.openapi.openapi_document", counted)
    operations = OperationEndpoints(cast(RunService, None), Metrics(), DIALECTS, KeyRing({}))
    for _ in range(3):
        assert operations.openapi_json() == msgspec.json.encode(openapi_document(version("cursor-gateway"), DIALECTS))
        assert operations.docs_page("http://a").startswith("<!doctype html>")
    assert made == [version("cursor-gateway")]
