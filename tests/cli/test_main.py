"""The command as a whole: help, version, schema."""

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from cursor_gateway.cli.main import cli, run
from cursor_gateway.cli.output import full_version
from tests.cli.processes import finished


def test_help_has_examples_for_the_command_and_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert "cursor-gateway serve\n" in out
    titles = re.findall(r"^(\w[\w ]*):$", out, re.MULTILINE)
    assert titles == ["Options", "Use the agent", "Connect other programs", "Look at answers and problems", "Operate"]
    for command in cli.commands:
        assert f"\n  {command} " in out
        assert run([command, "-h"]) == 0
        assert "Usage: cursor-gateway " in capsys.readouterr().out


def test_the_version_is_the_packages_own() -> None:
    ended = finished("--version")
    assert ended.stdout.startswith(b"cursor-gateway 0.")
    assert ended.returncode == 0


def test_a_package_names_the_commit_that_it_was_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda _package: tmp_path)
    assert full_version() == version("cursor-gateway")
    (tmp_path / "commit.txt").write_text("0123456789abcdef0123456789abcdef01234567\n")
    assert full_version() == f"{version('cursor-gateway')} (0123456789ab)"
    (tmp_path / "commit.txt").write_text("0123456789abcdef0123456789abcdef01234567 with changes\n")
    assert full_version().endswith(" (0123456789ab with changes)")


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Use the agent:" in "".join(capsys.readouterr())


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convrt"]) == 2
    assert "convrt" in capsys.readouterr().err


def test_the_schema_is_json_schema_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["$schema"].startswith("https://json-schema.org/")
    assert out.startswith("{\n")
    assert out.endswith("}\n")


def test_the_schema_as_typescript(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "--typescript"]) == 0
    out = capsys.readouterr().out
    assert "export interface ChatResponse {" in out
    assert out.endswith("\n")


def test_the_schema_as_openapi_components(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "--openapi-components"]) == 0
    assert "ChatResponse" in json.loads(capsys.readouterr().out)["schemas"]
