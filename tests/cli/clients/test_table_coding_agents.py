"""What the coding agents are started and configured with."""

import json
import tomllib
from typing import Any

import pytest
from msgspec.structs import replace

from cursor_gateway.cli.clients.base import ClientProgram, JsonFile, NewFile
from cursor_gateway.cli.clients.table import CLAUDE, CODEX, KILO, OPENCODE
from tests.cli.clients.endpoints import FOLDER, FULL, MODELS, PLAIN


def test_the_environment_names_the_gateway_and_nothing_leads_elsewhere() -> None:
    assert CLAUDE.launch is not None
    start = CLAUDE.launch.start(FULL, FOLDER)
    assert start.environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8787"  # it adds /v1 itself
    assert start.environment["ANTHROPIC_AUTH_TOKEN"] == "cgw_secret"
    assert (
        start.environment["ANTHROPIC_CUSTOM_HEADERS"]
        == "x-cursor-workspace: /home/me/my project\nx-cursor-text: readable"
    )
    assert start.environment["ANTHROPIC_API_KEY"] is None
    assert start.environment["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] == "1"
    assert start.arguments == ("--settings", f"{FOLDER}/settings.json")
    settings = json.loads(start.files["settings.json"])  # above the user's own, which would win over variables
    assert settings["env"] == {name: value or "" for name, value in start.environment.items()}
    assert start.environment["ANTHROPIC_MODEL"] == "claude-opus-4.6"  # as its picker lists it
    sonnet = replace(FULL, model="claude-sonnet-5", workspace="")
    assert CLAUDE.launch.start(sonnet, FOLDER).environment["ANTHROPIC_MODEL"] == "claude-sonnet-5"
    assert "ANTHROPIC_MODEL" not in CLAUDE.launch.start(PLAIN, FOLDER).environment  # then it has its own
    plain = CLAUDE.launch.start(PLAIN, FOLDER).environment
    assert plain["ANTHROPIC_CUSTOM_HEADERS"] == "x-cursor-text: readable"


def test_the_same_is_kept_in_its_settings() -> None:
    kept = CLAUDE.keep(PLAIN)
    assert isinstance(kept, JsonFile)
    assert dict(kept.values)["env", "ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8787"
    assert dict(kept.values)["env", "ANTHROPIC_CUSTOM_HEADERS"] == "x-cursor-text: readable"


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


@pytest.mark.parametrize(("client", "variable"), [(OPENCODE, "OPENCODE_CONFIG_CONTENT"), (KILO, "KILO_CONFIG_CONTENT")])
def test_a_configuration_in_a_variable(client: ClientProgram, variable: str) -> None:
    assert client.launch is not None
    start = client.launch.start(FULL, FOLDER)
    configuration = json.loads(start.environment[variable] or "")
    assert configuration["model"] == configuration["small_model"] == "cursor-gateway/opus-4.6"
    provider = configuration["provider"]["cursor-gateway"]
    assert provider["options"] == {
        "baseURL": "http://127.0.0.1:8787/v1",
        "apiKey": "cgw_secret",
        "headers": {"x-cursor-workspace": "/home/me/my project", "x-cursor-text": "readable"},
    }
    assert provider["models"]["auto"]["name"] == "Auto"
    assert set(provider["models"]) == {"auto", "opus-4.6"}


@pytest.mark.parametrize("client", [OPENCODE, KILO])
def test_a_provider_is_kept_beside_the_users_own(client: ClientProgram) -> None:
    kept = client.keep(PLAIN)
    assert isinstance(kept, JsonFile)
    ((path, provider),) = kept.values
    assert path == ("provider", "cursor-gateway")
    assert provider["options"] == {
        "baseURL": "http://127.0.0.1:8787/v1",
        "apiKey": "any",
        "headers": {"x-cursor-text": "readable"},
    }
