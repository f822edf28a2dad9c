"""At a usage limit or without a login: how many agents real clients start, and what they are told of the reason."""

import os
from collections.abc import Iterator
from pathlib import Path

import openai as sdk
import pytest

from tests.agent.install import install
from tests.cli.processes import finished
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import ask, http_client, invocations, openai_client, question, standin, unique

RESET = "Your usage limits will reset when your monthly cycle ends on 10/2/2026."
REMEMBERS = {"account_error_seconds": "600"}


@pytest.fixture
def remembering(tmp_path: Path) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path, settings=REMEMBERS) as gateway:
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("scenario", ["fail-quota-early", "fail-quota", "fail-auth", "fail-key"])
@pytest.mark.quick_cases(2)
def test_openais_client_starts_one_agent(remembering: RunningGateway, scenario: str, stream: bool) -> None:
    """It repeats twice what it believes to be worth it."""
    mark = unique()
    prompt = f"{mark} {standin(scenario)}"
    with openai_client(remembering, max_retries=2) as client:
        for _ in range(3):
            with pytest.raises(sdk.APIError) as caught:
                list(client.chat.completions.create(**question(prompt, stream=stream)))
            if "quota" in scenario:
                assert RESET in caught.value.message
    assert len(invocations(remembering, mark)) == 1


@pytest.mark.parametrize("interactive", [False, True])
@pytest.mark.parametrize("scenario", ["fail-quota", "fail-auth", "fail-network"])
def test_a_persons_own_retry_always_asks_the_agent(
    remembering: RunningGateway, scenario: str, interactive: bool
) -> None:
    """Whatever a client was told about the same question, or about the account, a moment before."""
    mark = unique()
    prompt = f"{mark} {standin(scenario)}"
    source = {"source": "interactive"} if interactive else {}
    with http_client(remembering) as client:
        for _ in range(2):
            assert ask(client, "openai", prompt).status_code >= 400
        agents = len(invocations(remembering, mark))
        assert agents == 1
        for _ in range(2):
            client.post("/v1/chat", json={"message": prompt, **source})
            before, agents = agents, len(invocations(remembering, mark))
            assert agents > before


def test_the_agent_is_asked_again_when_something_has_changed(tmp_path: Path) -> None:
    """Its configuration, its program, or what doctor has to say about it."""
    mark = unique()
    prompt = f"{mark} {standin('fail-auth')}"

    def agents() -> int:
        for _ in range(2):
            assert ask(client, "openai", prompt).status_code == 401
        return len(invocations(gateway, mark))

    with running_gateway(tmp_path, settings=REMEMBERS) as gateway, http_client(gateway) as client:
        assert agents() == 1
        (tmp_path / ".cursor" / "cli-config.json").write_text('{"version": 1}')
        assert agents() == 2
        program = install(tmp_path / "bin", knobs={"log": str(gateway.agent_log)})
        os.utime(program, (1, 1))
        assert agents() == 3
        path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
        finished("doctor", HOME=str(tmp_path), PATH=path, CURSOR_GATEWAY_DATA_DIR=str(gateway.data))
        assert agents() == 4
        repeated = 'cursor_gateway_account_errors_repeated_total{code="agent_unauthenticated"} 4.0'
        assert repeated in client.get("/metrics").text
    assert gateway.log.read_text().count("failure repeated") == 4


# --- the agent's own words ------------------------------------------------------------------------------


def test_no_credential_of_the_agents_is_repeated_in_an_error(tmp_path: Path) -> None:
    """Nor in the log, the history or the page. What is not a credential stays, and moves no cursor."""
    key, header = "key_0123456789abcdef", "header-0123456789"
    settings = {"agent_headers": f"X-Proxy={header}"}
    words = f"cannot log in: $CURSOR_API_KEY at https://me:pass@example.com with {header}\x1b]0;title\x07"
    with (
        running_gateway(tmp_path, settings=settings, environment={"CURSOR_API_KEY": key}) as gateway,
        http_client(gateway) as client,
    ):
        replies = [ask(client, "documents", standin("fail-words", words), stream=stream) for stream in (False, True)]
        for reply in replies:
            details = reply.json()["error"]["details"]
            assert "cannot log in: [redacted] at https://[redacted]@example.com with [redacted]" in details
            assert "\x1b" not in details
        replies.append(ask(client, "openai", standin("fail-words", words)))
        assert "cannot log in" not in replies[-1].text  # the agent's words may be ones that clients retry
        for reply in replies:
            shown = client.get(f"/v1/chat/{reply.headers['x-chat-id']}/events").text
            assert "cannot log in: [redacted]" in shown
            assert key not in reply.text + shown
    log = gateway.log.read_text()
    assert "cannot log in: [redacted]" in log
    assert not [secret for secret in (key, header, "me:pass") if secret in log]
