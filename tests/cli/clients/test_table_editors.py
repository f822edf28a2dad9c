import pytest

from cursor_gateway.cli.clients.base import ClientProgram, JsonFile, Steps
from cursor_gateway.cli.clients.table import ANY, CLINE_EDITOR, JETBRAINS, MCP, ZED
from tests.cli.clients.endpoints import FULL


def test_zed_gets_a_provider() -> None:
    kept = ZED.keep(FULL)
    assert isinstance(kept, JsonFile)
    ((path, provider),) = kept.values
    assert path == ("language_models", "openai_compatible", "cursor-gateway")
    assert provider["api_url"] == "http://127.0.0.1:8787/v1"
    assert [model["name"] for model in provider["available_models"]] == ["auto", "opus-4.6"]


@pytest.mark.parametrize("client", [CLINE_EDITOR, JETBRAINS, ANY])
def test_what_to_do_by_hand(client: ClientProgram) -> None:
    kept = client.keep(FULL)
    assert isinstance(kept, Steps)
    result = "\n".join(kept.lines)
    assert all(part in result for part in ("http://127.0.0.1:8787/v1", "cgw_secret", "opus-4.6"))


def test_mcp_hosts_get_the_address_and_the_key() -> None:
    kept = MCP.keep(FULL)
    assert isinstance(kept, Steps)
    result = "\n".join(kept.lines)
    assert "http://127.0.0.1:8787/mcp" in result
    assert "Bearer cgw_secret" in result
