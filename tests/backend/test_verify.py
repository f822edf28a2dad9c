"""`cursor-gateway verify` with Cursor's own runtime."""

import asyncio
import json
from pathlib import Path

import pytest

from cursor_gateway.cli.commands.verify import HELD, verify_source
from cursor_gateway.settings import Settings
from tests.backend.conftest import PASSED_ON
from tests.backend.server import Backend
from tests.cli.verifying import Programmed


def test_the_sdk_is_verified(tmp_path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**backend.environment, "HOME": str(tmp_path), "SHELL": "/bin/sh"}.items():
        monkeypatch.setenv(name, value)
    settings = Settings(agent_environment=PASSED_ON.split(","))
    found = asyncio.run(verify_source(settings, "sdk", tmp_path / "kept", adapt=Programmed()))
    assert (found.source, found.version) == ("sdk", "1.1.0")
    outcomes = {result.check: result.outcome for result in found.results}
    assert set(outcomes.values()) == {"same", "skipped"}, found.results
    assert {check for check, outcome in outcomes.items() if outcome == "skipped"} == {"question", HELD}
    sent = [len(request.get("conversation_state", {}).get("turns", [])) for request in backend.requests]
    assert sent[:3] == [0, 1, 0]  # the second is the one that resumes
    folder = tmp_path / "kept" / "sdk"
    (text,) = folder.glob("text-[0-9].ndjson")  # the bridge's messages, as it sent them
    events = [json.loads(line) for line in text.read_text().splitlines()]
    assert {name for event in events for name in event} >= {"sdkMessage", "interactionUpdate", "result", "done"}
    updates = [event["interactionUpdate"]["update"] for event in events if "interactionUpdate" in event]
    assert [update["text"] for update in updates if update["type"] == "text-delta"]
    (edit,) = (json.loads(file.read_text()) for file in folder.glob("edit-[0-9].argv.json"))
    assert edit[0] == "cursor-sdk"
    for file in folder.iterdir():
        kept = file.read_text()
        assert backend.environment["CURSOR_API_KEY"] not in kept
        assert str(tmp_path) not in kept
