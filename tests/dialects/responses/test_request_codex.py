"""What Codex says about itself."""

import json
from typing import Any

import pytest

from cursor_gateway.dialects.responses.request import Codex, read_codex

CODEX = {"originator": "codex_cli_rs"}


def test_other_clients_are_not_codex() -> None:
    assert read_codex({}, {}, None) is None
    assert read_codex({"originator": "my_app"}, {}, "key") is None


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {"originator": name}
            for name in ("codex-tui", "codex_exec", "codex_cli_rs", "codex_vscode", "Codex Desktop")
        ),
        {"originator": "my_app", "x-codex-turn-metadata": "{}"},
    ],
)
def test_every_program_of_codex_is_codex(headers: dict[str, str]) -> None:
    assert read_codex({**headers, "session-id": "s"}, {}, None) == Codex("s")


def test_the_session_is_the_thread() -> None:
    assert read_codex({**CODEX, "session-id": "s", "thread-id": "t"}, {}, "k") == Codex("s")
    assert read_codex({**CODEX, "thread-id": "t"}, {}, "k") == Codex("t")
    assert read_codex(CODEX, {}, "k") == Codex("k")
    assert read_codex(CODEX, {}, None) == Codex("")


def test_subagents_have_sessions_of_their_own() -> None:
    named = {"x-codex-turn-metadata": json.dumps({"agent_name": "review"})}
    assert read_codex({**CODEX, **named, "session-id": "s"}, {}, None) == Codex("s/review")
    assert read_codex({**CODEX, "session-id": "s", "x-codex-parent-thread-id": "p"}, {}, None) == Codex("s/p")
    assert read_codex({**CODEX, "session-id": "s"}, {"x-codex-parent-thread-id": "p"}, None) == Codex("s/p")


def test_the_turn_tells_its_id_its_kind_and_folder() -> None:
    turn = {"turn_id": "t", "request_kind": "compaction", "workspaces": {"/home/me/project": {}, "/tmp": {}}}
    expected = Codex("", "t", "/home/me/project", is_compaction=True)
    assert read_codex({**CODEX, "x-codex-turn-metadata": json.dumps(turn)}, {}, None) == expected
    assert read_codex(CODEX, {"x-codex-turn-metadata": json.dumps(turn)}, None) == expected
    assert read_codex(CODEX, {"x-codex-turn-metadata": turn}, None) == expected


@pytest.mark.parametrize(
    "turn", ["", "{", "[]", "7", '{"workspaces": {}}', '{"workspaces": ["/"]}', '{"agent_name": 1}', '{"turn_id": 1}']
)
def test_what_cannot_be_read_tells_nothing(turn: Any) -> None:
    assert read_codex({**CODEX, "x-codex-turn-metadata": turn}, {}, None) == Codex("")
