"""`cursor-gateway verify`: with the stand-in of each backend; what it finds, keeps, and never does unasked."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from cursor_gateway.cli.commands import verify as verification
from cursor_gateway.cli.commands.doctor import of_verified
from cursor_gateway.cli.commands.verify import (
    HELD,
    PROMPTS,
    CheckResult,
    Verified,
    read_verified,
    redact,
    set_up,
    store_verified,
    table_of,
    verify_source,
    version_in,
)
from cursor_gateway.settings import Settings
from tests.agent.bridge_install import install_bridge
from tests.agent.install import install
from tests.cli.processes import finished
from tests.cli.verifying import adapted

KEY = "key_0123456789"
EVERYWHERE = {"text", "text again", "resume", "read", "edit", "refused command", "cancel", "models"}
SAME = {
    "cli": EVERYWHERE | {"permission", "question", "usage", "hook", HELD},
    "acp": EVERYWHERE | {"permission", "question"},
    "sdk": EVERYWHERE | {"permission", "usage", "hook"},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path / "bin", knobs={"log": str(tmp_path / "log")})
    for name, value in {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "CURSOR_API_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("source", SAME)
@pytest.mark.quick_cases(1)
def test_each_backend_is_verified(home: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over ACP, the stand-in calls no hooks, which is the one difference."""
    monkeypatch.setattr(verification, "_HELD_SECONDS", 0.2)
    settings = Settings(sdk_bridge=install_bridge(home / "bridge"), grace_seconds=1)
    begun: list[str] = []
    found = asyncio.run(verify_source(settings, source, home / "kept", begun.append, adapted))
    outcomes = {result.check: result.outcome for result in found.results}
    assert {check for check, outcome in outcomes.items() if outcome == "same"} == SAME[source], found.results
    assert found.differences == (["hook"] if source == "acp" else [])
    assert begun == list(outcomes)
    assert set(PROMPTS) - {"released command"} <= outcomes.keys()
    kept = home / "kept" / source
    texts = [file.read_text() for file in kept.iterdir()]
    assert not any(KEY in text or str(home) in text for text in texts)
    assert json.loads((kept / "verified.json").read_text())["version"] == found.version
    if source != "sdk":
        first = "text-1" if (kept / "text-1.ndjson").exists() else "start-1"  # over ACP it may start before the check
        assert json.loads((kept / f"{first}.argv.json").read_text())[0].endswith("cursor-agent")
        assert (kept / f"{first}.ndjson").read_text()
    assert ("1 difference" if source == "acp" else "no differences") in str(table_of(found).title)


def test_an_agent_that_says_something_else_is_different(home: Path) -> None:
    found = asyncio.run(verify_source(Settings(grace_seconds=1), "cli", adapt=lambda check, prompt: "standin: crash"))
    outcomes = {result.check: result.outcome for result in found.results}
    assert set(outcomes.values()) == {"different", "skipped", "same"}
    assert {check for check, outcome in outcomes.items() if outcome == "skipped"} == {"resume", "usage"}


def test_nothing_is_sent_unless_somebody_agrees(home: Path) -> None:
    ran = finished("verify", "--source", "cli", HOME=str(home), CURSOR_GATEWAY_DATA_DIR=str(home / "data"))
    assert ran.returncode == 2
    assert b"Up to 12 short prompts will be sent to Cursor" in ran.stderr
    assert b"nothing was sent; add `--yes`" in ran.stderr
    assert not (home / "log").exists()


def test_the_result_is_printed_and_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in repeats its prompts, which is not what they ask for."""
    monkeypatch.setenv("CURSOR_GATEWAY_DATA_DIR", str(home / "data"))
    monkeypatch.setenv("CURSOR_GATEWAY_GRACE_SECONDS", "1")
    ran = finished("verify", "--source", "cli", "--yes")
    assert ran.returncode == 1, ran.stderr
    assert "refused command" in ran.stdout.decode()
    (kept,) = read_verified(home / "data")
    assert kept.source == "cli"
    assert "text" in kept.differences
    said = finished("doctor").stdout.decode()
    assert f"cli verified with {kept.version} on {kept.date}, {len(kept.differences)} differences" in " ".join(
        said.split()
    )


def test_a_backend_that_is_not_set_up_is_named(home: Path) -> None:
    ran = finished("verify", "--source", "sdk", "--yes", HOME=str(home), CURSOR_API_KEY="")
    assert (ran.returncode, b"CURSOR_API_KEY is not set" in ran.stderr) == (2, True)
    ran = finished("verify", "--yes", HOME=str(home), CURSOR_API_KEY="", PATH="/nowhere")
    assert (ran.returncode, b"no backend is set up" in ran.stderr) == (2, True)
    found = set_up(Settings(trust=False), os.environ)
    assert (found["cli"], "trust" in found["acp"]) == ("", True)


def test_the_newest_result_of_a_version_counts(tmp_path: Path) -> None:
    assert read_verified(tmp_path) == []
    results = [CheckResult("text", "same", ""), CheckResult("hook", "different", "no")]
    for date, these in (("2026-11-17", results), ("2026-11-18", results[:1])):
        store_verified(tmp_path, Verified("cli", "2026.10.01", "Linux", date, these))
    store_verified(tmp_path, Verified("sdk", "1.1.0", "Linux", "2026-11-18", results))
    assert [(one.source, one.date) for one in read_verified(tmp_path)] == [("cli", "2026-11-18"), ("sdk", "2026-11-18")]
    said = of_verified(read_verified(tmp_path)).found
    assert said == (
        "cli verified with 2026.10.01 on 2026-11-18, no differences; "
        "sdk verified with 1.1.0 on 2026-11-18, 1 difference"
    )
    assert "not yet" in of_verified([]).found
    (tmp_path / "verified.json").write_text("{")
    assert read_verified(tmp_path) == []


def test_what_is_kept_has_no_secrets_and_no_names(tmp_path: Path) -> None:
    file = tmp_path / "one.ndjson"
    file.write_text('{"key":"sec\\"ret","home":"/home/me/x","mail":"me@example.com","scratch":"/home/me/tmp"}')
    redact(tmp_path, ['sec"ret', ""], {"/home/me": "/HOME", "/home/me/tmp": "/SCRATCH"})
    expected = '{"key":"[redacted]","home":"/HOME/x","mail":"redacted@example.invalid","scratch":"/SCRATCH"}'
    assert file.read_text() == expected


def test_the_version_is_read_from_what_health_says() -> None:
    assert version_in("cursor-agent 2026.10.01-e373342 (/bin/cursor-agent)") == "2026.10.01-e373342"
    assert version_in("cursor-sdk 1.1.0, its bridge runs as process 5") == "1.1.0"
    assert version_in("unknown") == "unknown"
