"""The list of models, as OpenAI's, Anthropic's and Codex's clients read it."""

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from cursor_gateway.sources.base import Model
from tests.anthropic_shapes import Error
from tests.dialects.test_third_dialect import HELLO, gateway_of
from tests.runs.scripted import ScriptedSource

ANTHROPIC = {"anthropic-version": "2023-06-01"}


async def ids(client: httpx2.AsyncClient, **query: Any) -> tuple[list[str], bool]:
    page = (await client.get("/v1/models", params=query, headers=ANTHROPIC)).json()
    found = [model["id"] for model in page["data"]]
    assert (page["first_id"], page["last_id"]) == ((found[0], found[-1]) if found else (None, None))
    assert set(page) == {"data", "has_more", "first_id", "last_id"}
    return found, page["has_more"]


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    async def models(self: ScriptedSource) -> list[Model]:
        return [Model("auto", "Auto", True), Model("composer-2", ""), Model("claude-opus-4-8", "Claude Opus 4.8")]

    monkeypatch.setattr(ScriptedSource, "models", models)
    monkeypatch.setattr(ScriptedSource, "check_model", lambda self, model: None)


async def test_one_body_for_openai_and_codex(tmp_path: Path) -> None:
    async with gateway_of(tmp_path, []) as client:
        body = (await client.get("/v1/models", params={"client_version": "1"})).json()
        assert (body["object"], body["has_more"], body["first_id"]) == ("list", False, "auto")
        auto, composer, _, *aliases = body["data"]
        assert {entry["id"]: entry["alias_of"] for entry in aliases} == {
            "gpt-4o": "auto",
            "gpt-4o-mini": "auto",
            "haiku": "auto",
            "opus": "claude-opus-4-8",
            "sonnet": "auto",
        }
        assert aliases[3]["name"] == "opus (claude-opus-4-8)"
        assert body["last_id"] == "sonnet"
        assert auto == {
            "id": "auto",
            "object": "model",
            "created": auto["created"],
            "owned_by": "cursor",
            "name": "Auto",
            "type": "model",
            "display_name": "Auto",
            "created_at": auto["created_at"],
            "lifecycle": "active",
            "max_input_tokens": 200_000,
            "max_tokens": 64_000,
        }
        assert auto["created_at"].endswith("Z")
        assert composer["display_name"] == "composer-2"
        assert [(model["slug"], model["priority"]) for model in body["models"]] == [
            ("auto", 0),
            ("composer-2", 1),
            ("claude-opus-4-8", 2),
        ]
        assert body["models"][0] == {
            "slug": "auto",
            "display_name": "Auto",
            "description": "Auto, by Cursor",
            "supported_reasoning_levels": [],
            "shell_type": "shell_command",
            "visibility": "list",
            "supported_in_api": True,
            "priority": 0,
            "availability_nux": None,
            "upgrade": None,
            "support_verbosity": False,
            "default_verbosity": None,
            "apply_patch_tool_type": None,
            "truncation_policy": {"mode": "bytes", "limit": 10_000},
            "context_window": 200_000,
            "experimental_supported_tools": [],
            "input_modalities": ["text", "image"],
            "base_instructions": body["models"][0]["base_instructions"],
        }


async def test_anthropics_clients_get_pages_of_names_that_claude_code_shows(tmp_path: Path) -> None:
    async with gateway_of(tmp_path, []) as client:
        names = ["claude-auto", "claude-composer-2", "claude-opus-4-8"]
        assert await ids(client) == await ids(client, limit=1000) == (names, False)
        assert await ids(client, limit=2) == (names[:2], True)
        assert await ids(client, limit=2, after_id=names[1]) == (names[2:], False)
        assert await ids(client, limit=1, before_id=names[2]) == (names[1:2], True)
        for beside in ({"after_id": names[2]}, {"before_id": names[0]}, {"after_id": "gone"}, {"before_id": "gone"}):
            assert await ids(client, **beside) == ([], False)
        for wrong in ({"limit": "0"}, {"limit": "many"}, {"limit": "1001"}):
            assert (await client.get("/v1/models", params=wrong, headers=ANTHROPIC)).status_code == 400


async def test_a_model_is_found_by_all_its_names(tmp_path: Path) -> None:
    async with gateway_of(tmp_path, []) as client:
        for name, label in {
            "composer-2": "composer-2",
            "claude-composer-2": "claude-composer-2",
            "claude-opus-5-5": "Claude Opus 4.8",
            "claude-haiku-4-5-20251001": "Auto",
            "gpt-4o-mini-2024-07-18": "Auto",
        }.items():
            found = (await client.get(f"/v1/models/{name}")).json()
            assert (found["id"], found["display_name"]) == (name, label)
        assert (await client.get("/v1/models/gpt-1")).status_code == 404


@pytest.mark.parametrize(
    ("name", "model"), [("claude-opus-5-5", "claude-opus-4-8"), ("claude-next", "auto"), ("gpt-4o", "auto")]
)
async def test_a_request_gets_the_model_that_the_name_stands_for(tmp_path: Path, name: str, model: str) -> None:
    async with gateway_of(tmp_path, [HELLO]) as client:
        body = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
        reply = await client.post("/v1/chat/completions", json=body)
        assert reply.json()["model"] == model


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/models/nope", 404, "not_found_error"),
        ("/v1/conversations?limit=0", 400, "invalid_request_error"),
        ("/v1/messages/batches", 404, "not_found_error"),
    ],
)
def test_anthropics_clients_get_their_own_errors_on_every_path(
    http: httpx2.Client, path: str, status: int, kind: str
) -> None:
    reply = http.get(path, headers=ANTHROPIC)
    error = msgspec.json.decode(reply.content, type=Error)
    assert (reply.status_code, error.error.type, error.request_id) == (status, kind, reply.headers["request-id"])
    assert "code" in http.get(path).json()["error"]  # OpenAI's, for everybody else
