import json

from msgspec.structs import replace

from cursor_gateway.cli.clients.base import JsonFile
from cursor_gateway.cli.clients.claude import CLAUDE
from tests.cli.clients.endpoints import FOLDER, FULL, PLAIN


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
