import json

import yaml  # type: ignore[import-untyped] # its types are another package

from cursor_gateway.cli.clients.base import ClientProgram, JsonFile, StartPlan, YamlFile
from cursor_gateway.cli.clients.table import AIDER, CLINE, CN, LLM, PI, QWEN
from tests.cli.clients.endpoints import FOLDER, FULL, MODELS, PLAIN

URL = "http://127.0.0.1:8787/v1"
READABLE = {"x-cursor-text": "readable"}
HEADERS = {"x-cursor-workspace": "/home/me/my project", **READABLE}
IDS = [model.id for model in MODELS]


def started(client: ClientProgram) -> StartPlan:
    assert client.launch is not None
    return client.launch.start(FULL, FOLDER)


def json_values(client: ClientProgram) -> dict[tuple[str, ...], object]:
    kept = client.keep(PLAIN)
    assert isinstance(kept, JsonFile)
    return dict(kept.values)


def new_text(client: ClientProgram) -> str:
    kept = client.keep(PLAIN)
    assert isinstance(kept, YamlFile)
    return kept.text


def test_qwen_reads_a_settings_file_above_the_users() -> None:
    start = started(QWEN)
    assert start.environment == {
        "CGW_API_KEY": "cgw_secret",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{FOLDER}/settings.json",
    }
    settings = json.loads(start.files["settings.json"])
    assert settings["model"]["name"] == "opus-4.6"
    models = settings["modelProviders"]["openai"]
    assert [(model["id"], model["baseUrl"], model["envKey"]) for model in models] == [
        (id, URL, "CGW_API_KEY") for id in IDS
    ]
    assert models[0]["generationConfig"]["customHeaders"] == HEADERS
    assert json_values(QWEN)["model", "name"] == "auto"
    assert settings["ui"]["enableFollowupSuggestions"] is json_values(QWEN)["ui", "enableFollowupSuggestions"] is False
    assert set(settings["memory"].values()) == {False}


def test_pi_loads_an_extension() -> None:
    start = started(PI)
    assert start.arguments == (
        *("-e", f"{FOLDER}/provider.js"),
        *("--provider", "cursor-gateway", "--model", "opus-4.6"),
    )
    script = start.files["provider.js"]
    call = script.partition('pi.registerProvider("cursor-gateway", ')[2].rpartition(");")[0]
    provider = json.loads(call)
    assert (provider["baseUrl"], provider["apiKey"], provider["headers"]) == (URL, "cgw_secret", HEADERS)
    assert [model["id"] for model in provider["models"]] == IDS
    kept = json_values(PI)["providers", "cursor-gateway"]
    assert isinstance(kept, dict)
    assert kept["headers"] == READABLE


def test_continue_reads_a_file_whose_first_model_is_the_default() -> None:
    start = started(CN)
    assert start.arguments == ("--config", f"{FOLDER}/config.yaml")
    models = yaml.safe_load(start.files["config.yaml"])["models"]
    assert [model["model"] for model in models] == ["opus-4.6", "auto"]
    assert models[0]["name"] == MODELS[1].label
    assert models[0]["apiBase"] == URL
    assert models[0]["requestOptions"] == {"headers": HEADERS}
    (kept,) = yaml.safe_load(new_text(CN))["models"]
    assert kept["requestOptions"] == {"headers": READABLE}


def test_cline_reads_another_file_of_providers() -> None:
    start = started(CLINE)
    assert start.environment == {
        "CLINE_PROVIDER_SETTINGS_PATH": f"{FOLDER}/providers.json",
        "CLINE_SESSION_BACKEND_MODE": "local",
    }
    providers = json.loads(start.files["providers.json"])
    settings = providers["providers"][providers["lastUsedProvider"]]["settings"]
    assert settings == {
        "provider": "openai-compatible",
        "apiKey": "cgw_secret",
        "model": "opus-4.6",
        "baseUrl": URL,
        "headers": HEADERS,
    }
    assert json_values(CLINE)["lastUsedProvider",] == "openai-compatible"


def test_aider_lets_the_agent_only_read() -> None:
    start = started(AIDER)
    assert start.environment["AIDER_MODEL"] == "openai/opus-4.6"
    assert start.environment["AIDER_OPENAI_API_BASE"] == URL
    entries = yaml.safe_load(start.files["models.yml"])
    assert [entry["name"] for entry in entries] == ["openai/auto", "openai/opus-4.6"]
    assert entries[0]["extra_params"] == {"extra_headers": {**HEADERS, "x-cursor-mode": "ask"}}
    assert set(json.loads(start.files["limits.json"])) == {"openai/auto", "openai/opus-4.6"}
    assert yaml.safe_load(new_text(AIDER)) == {"model": "openai/auto", "openai-api-base": URL, "openai-api-key": "any"}


def test_llm_has_a_folder_of_its_own() -> None:
    start = started(LLM)
    assert start.environment == {"LLM_USER_PATH": FOLDER, "LLM_MODEL": "cursor-gateway/opus-4.6"}
    entries = yaml.safe_load(start.files["extra-openai-models.yaml"])
    assert [entry["model_id"] for entry in entries] == ["cursor-gateway/auto", "cursor-gateway/opus-4.6"]
    assert (entries[0]["headers"], entries[0]["api_key_name"]) == (HEADERS, "cursor-gateway")
    assert json.loads(start.files["keys.json"]) == {"cursor-gateway": "cgw_secret"}
    (kept,) = yaml.safe_load(new_text(LLM))
    assert "api_key_name" not in kept  # a gateway without keys needs none
