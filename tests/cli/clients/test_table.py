"""What holds for every client."""

import pytest

from cursor_gateway.cli.clients.base import ClientProgram
from cursor_gateway.cli.clients.table import CLIENTS, LAUNCHED
from tests.cli.clients.endpoints import FOLDER, FULL

each_launched = pytest.mark.parametrize("client", LAUNCHED.values(), ids=LAUNCHED)


@each_launched
def test_the_key_is_never_an_argument(client: ClientProgram) -> None:
    """Other users of the machine see the arguments of a process."""
    assert client.launch is not None
    start = client.launch.start(FULL, FOLDER)
    assert not [argument for argument in start.arguments if FULL.key in argument]
    result = [*start.files.values(), *(value or "" for value in start.environment.values())]
    assert any(FULL.key in text for text in result)


@each_launched
def test_no_variable_looks_like_a_setting_of_the_gateway(client: ClientProgram) -> None:
    """The `cursor-gateway` that a client starts would refuse it."""
    assert client.launch is not None
    assert not [name for name in client.launch.start(FULL, FOLDER).environment if name.startswith("CURSOR_GATEWAY_")]


def test_names() -> None:
    assert all(name == client.name for name, client in CLIENTS.items())
    assert set(LAUNCHED) == {"claude", "codex", "opencode", "qwen", "pi", "cn", "cline", "aider", "llm", "kilo"}
