import json
import tomllib
from typing import Any

from cursor_gateway.cli.clients.base import NewFile
from cursor_gateway.cli.clients.codex import CODEX
from tests.cli.clients.endpoints import FOLDER, FULL, MODELS, PLAIN

PROVIDER = {"name": "Cursor", "base_url": "http://127.0.0.1:8787/v1", "wire_api": "responses"}


def configured(arguments: list[str]) -> dict[str, Any]:
    """As Codex reads them: `-c`, and a dotted name with a value in TOML."""
    assert arguments[::2] == ["-c"] * (len(arguments) // 2)
    return tomllib.loads("\n".join(arguments[1::2]))


def test_a_provider_for_one_process() -> None:
    assert CODEX.launch is not None
    start = CODEX.launch.start(FULL, FOLDER)
    headers = {"http_headers": {"x-cursor-workspace": "/home/me/my project", "x-cursor-text": "readable"}}
    assert configured(list(start.arguments)) == {
        "model_provider": "cursor-gateway",
        "model": "opus-4.6",
        "model_catalog_json": f"{FOLDER}/models.json",
        "model_providers": {"cursor-gateway": {**PROVIDER, **headers, "env_key": "CGW_API_KEY"}},
    }
    assert start.environment == {"CGW_API_KEY": "cgw_secret"}
    listed = json.loads(start.files["models.json"])["models"]
    assert [(model["slug"], model["display_name"]) for model in listed] == [(one.id, one.label) for one in MODELS]


def test_a_profile_to_keep() -> None:
    kept = CODEX.keep(PLAIN)
    assert isinstance(kept, NewFile)
    assert kept.name == "cursor.config.toml"  # for `codex -p cursor`
    headers = {"http_headers": {"x-cursor-text": "readable"}}
    assert tomllib.loads(kept.text) == {
        "model_provider": "cursor-gateway",
        "model": "auto",
        "model_providers": {"cursor-gateway": {**PROVIDER, **headers, "experimental_bearer_token": "any"}},
    }
