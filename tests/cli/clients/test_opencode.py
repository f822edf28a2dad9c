import json

import pytest

from cursor_gateway.cli.clients.base import Client, JsonFile
from cursor_gateway.cli.clients.opencode import KILO, OPENCODE
from tests.cli.clients.endpoints import FOLDER, FULL, PLAIN


@pytest.mark.parametrize(("client", "variable"), [(OPENCODE, "OPENCODE_CONFIG_CONTENT"), (KILO, "KILO_CONFIG_CONTENT")])
def test_a_configuration_in_a_variable(client: Client, variable: str) -> None:
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
def test_a_provider_is_kept_beside_the_users_own(client: Client) -> None:
    kept = client.keep(PLAIN)
    assert isinstance(kept, JsonFile)
    ((path, provider),) = kept.values
    assert path == ("provider", "cursor-gateway")
    assert provider["options"] == {
        "baseURL": "http://127.0.0.1:8787/v1",
        "apiKey": "any",
        "headers": {"x-cursor-text": "readable"},
    }
