from cursor_gateway.cli.clients.base import JsonFile
from cursor_gateway.cli.clients.claude import CLAUDE
from tests.cli.clients.endpoints import FOLDER, FULL, PLAIN


def test_the_environment_names_the_gateway_and_nothing_leads_elsewhere() -> None:
    assert CLAUDE.launch is not None
    start = CLAUDE.launch.start(FULL, FOLDER)
    assert start.environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8787"  # it adds /v1 itself
    assert start.environment["ANTHROPIC_AUTH_TOKEN"] == "cgw_secret"
    assert start.environment["ANTHROPIC_CUSTOM_HEADERS"] == "x-cursor-workspace: /home/me/my project"
    assert start.environment["ANTHROPIC_API_KEY"] is None
    assert start.environment["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] == "1"
    assert "ANTHROPIC_CUSTOM_HEADERS" not in CLAUDE.launch.start(PLAIN, FOLDER).environment


def test_the_same_is_kept_in_its_settings() -> None:
    kept = CLAUDE.keep(PLAIN)
    assert isinstance(kept, JsonFile)
    assert dict(kept.values)["env", "ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8787"
