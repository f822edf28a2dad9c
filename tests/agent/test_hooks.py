"""The stand-in runs hooks as the real program does."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent import hooks

DENY = """echo '{"permission": "deny", "user_message": "No."}'"""


def blocked(folder: Path, *entries: dict[str, Any]) -> str:
    file = folder / "hooks.json"
    file.write_text(json.dumps({"version": 1, "hooks": {"preToolUse": entries}}))
    return hooks.reason_to_block([str(file), str(folder / "none.json")], "s1", str(folder), "Shell", {"command": "ls"})


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ({"command": DENY}, "No."),
        ({"command": """echo '{"permission": "deny"}'"""}, "Shell blocked by preToolUse hook"),
        ({"command": """echo '{"permission": "allow"}'"""}, ""),
        ({"command": """echo '{"permission": "ask"}'""", "failClosed": True}, ""),  # nobody can be asked
        ({"command": "true"}, ""),
        ({"command": "true", "failClosed": True}, "no JSON"),
        ({"command": "echo nonsense"}, "no JSON"),
        ({"command": "echo why >&2; exit 2"}, "Hook blocked with message: why"),
        ({"command": "exit 1"}, ""),
        ({"command": "exit 1", "failClosed": True}, "exit code 1"),
        ({"command": "/no/such/program"}, ""),
        ({"command": f"sleep 5; {DENY}", "timeout": 0.1}, ""),
        ({"command": f"sleep 5; {DENY}", "timeout": 0.1, "failClosed": True}, "timed out"),
        ({"command": f"sleep 0.2; {DENY}", "timeout": 30}, "No."),
    ],
)
def test_what_a_hook_decides(tmp_path: Path, hook: dict[str, Any], reason: str) -> None:
    found = blocked(tmp_path, hook)
    assert (reason in found, found == "") == (True, reason == "")
    assert found == "" or found.endswith("Agent note: Do not suggest workarounds to the blocked tool.")


def test_without_a_limit_it_waits_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hooks._SECONDS == 60
    monkeypatch.setattr(hooks, "_SECONDS", 0.1)
    assert blocked(tmp_path, {"command": f"sleep 5; {DENY}"}) == ""


def test_one_that_denies_is_enough_and_all_are_told(tmp_path: Path) -> None:
    told = tmp_path / "told"
    copy = f"{sys.executable} -c \"import sys; open('{told}', 'w').write(sys.stdin.read())\"; echo '{{}}'"
    assert blocked(tmp_path, {"command": DENY}, {"command": copy}).startswith("No.")
    assert json.loads(told.read_text())["tool_input"] == {"command": "ls"}
    assert blocked(tmp_path) == ""
