"""`cursor-gateway settings` and `key`: where settings are read from, and how they are shown."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.cli.configuration import configuration, data_dir, usual_file
from cursor_gateway.cli.main import run
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import hash_key, owner_of
from cursor_gateway.settings import Settings, every_setting
from tests.cli.processes import finished, on_a_terminal
from tools.reference.__main__ import PAGES

Told = Callable[..., str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the machine's own settings."""
    for name in [*os.environ]:
        if name.startswith(("CURSOR_GATEWAY_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def usual(home: Path) -> Path:
    folder = home / ".config" / "cursor-gateway"
    folder.mkdir(parents=True)
    return folder / "config.toml"


def refusal(path: Path | str | None = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        configuration(str(path) if path else None, environ=environ or {})
    return str(caught.value)


# --- the file ---------------------------------------------------------------------------------------


def test_without_a_file_all_are_defaults() -> None:
    assert configuration(environ={}).settings == Settings()


def test_the_usual_file_is_read_if_there_is_one(usual: Path, tmp_path: Path) -> None:
    usual.write_text("port = 1\n[api_keys]\n")
    loaded = configuration(environ={})
    assert (loaded.settings.port, loaded.origins["port"]) == (1, f"file {usual}")
    elsewhere = tmp_path / "elsewhere" / "cursor-gateway"
    elsewhere.mkdir(parents=True)
    (elsewhere / "config.toml").write_text("port = 2")
    assert configuration(environ={"XDG_CONFIG_HOME": str(tmp_path / "elsewhere")}).settings.port == 2
    assert configuration(environ={"XDG_CONFIG_HOME": "relative"}).settings.port == 1  # as XDG has it


def test_a_named_file_wins_over_the_usual_one_and_a_flag_over_all(usual: Path, tmp_path: Path) -> None:
    usual.write_text("port = 1")
    (tmp_path / "two.toml").write_text("port = 2")
    (tmp_path / "three.toml").write_bytes(b"\xef\xbb\xbfport = 3\r\n")  # as editors on Windows save it
    environ = {"CURSOR_GATEWAY_CONFIG": "~/two.toml"}
    assert configuration(environ=environ).settings.port == 2
    assert configuration(str(tmp_path / "three.toml"), environ=environ).settings.port == 3
    assert configuration(environ={"CURSOR_GATEWAY_CONFIG": ""}).settings.port == 1
    assert configuration(environ={**environ, "CURSOR_GATEWAY_PORT": "4"}).settings.port == 4
    assert configuration(None, {"port": 5}, {**environ, "CURSOR_GATEWAY_PORT": "4"}).settings.port == 5


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    missing = tmp_path / "a\nb.toml"
    for result in (refusal(missing), refusal(environ={"CURSOR_GATEWAY_CONFIG": str(missing)})):
        assert "cannot be read: No such file or directory" in result
        assert "\n" not in result
    assert "cannot be read: Is a directory" in refusal(tmp_path)
    assert "the home directory in" in refusal("~nobody-of-this-name/config.toml")


def test_a_file_that_is_no_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('port = 1\napi_key = "cgw_secret\n')
    result = refusal(file)
    assert repr(str(file)) in result
    assert "is not TOML: " in result
    assert "at line 2, column" in result
    assert "cgw_secret" not in result
    file.write_bytes(b"port = 1\n\nmodel = '\xff'\n")
    assert "is not UTF-8 (at line 3)" in refusal(file)
    file.write_text(f"allowed_hosts = {'[' * 5000}{']' * 5000}\n")
    assert "is nested too deeply" in refusal(file)


def test_where_the_usual_file_cannot_be_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".config").write_text("not a folder")
    assert configuration(environ={}).settings == Settings()

    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert usual_file({}) is None
    assert configuration(environ={}).settings == Settings()
    with pytest.raises(SettingsError, match="set `data_dir`"):
        data_dir(Settings(), {})


def test_where_the_gateways_files_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_dir(Settings(), {}) == home / ".local" / "share" / "cursor-gateway"
    assert data_dir(Settings(), {"XDG_DATA_HOME": "/data"}) == Path("/data/cursor-gateway")
    assert data_dir(Settings(data_dir="~/here"), {"XDG_DATA_HOME": "/data"}) == home / "here"
    monkeypatch.chdir(home)
    assert data_dir(Settings(data_dir="relative"), {}) == home / "relative"
    with pytest.raises(SettingsError, match="the home directory in"):
        data_dir(Settings(data_dir="~nobody-of-this-name"), {})


# --- settings ---------------------------------------------------------------------------------------

SECRETS = {
    "CURSOR_GATEWAY_API_KEY": "cgw_mine",
    "CURSOR_GATEWAY_API_KEYS": f"laptop={hash_key('cgw_mine')},ci={hash_key('cgw_other')}",
    "CURSOR_GATEWAY_AGENT_HEADERS": "x-token=hidden",
}


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Told:
    def show(*arguments: str, **environment: str) -> str:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert run(["settings", *arguments]) == 0
        out, error = capsys.readouterr()
        assert error == ""
        return str(out)

    return show


def test_every_setting_is_shown_with_its_value_its_origin_and_its_meaning(shown: Told, usual: Path) -> None:
    usual.write_text('host = "::1"\nallowed_hosts = ["a", "b"]\nidle_seconds = 90')
    out = shown(CURSOR_GATEWAY_PORT="9000", COLUMNS="300")
    assert re.search(r"^port +9000  \(CURSOR_GATEWAY_PORT\)\n +The port to listen on", out, re.MULTILINE)
    assert re.search(rf"^host +::1  \(file {re.escape(str(usual))}\)$", out, re.MULTILINE)
    for name, value in {"allowed_hosts": "a, b", "idle_seconds": "90"}.items():
        assert re.search(rf"^{name} +{value}  \(file", out, re.MULTILINE)
    for name, value in {"trust": "true", "workspace": "empty", "api_keys": "empty", "replay_speed": "1"}.items():
        assert re.search(rf"^{name} +{value}  \(default\)$", out, re.MULTILINE)
    for setting in every_setting():
        assert f"\n{setting.group}\n" in f"\n{out}"
        assert setting.meaning in out


def test_secrets_are_not_shown_but_whose_keys_there_are(shown: Told) -> None:
    for out in (shown(**SECRETS), shown("--json", **SECRETS)):
        for secret in ("cgw_", "sha256", "hidden"):
            assert secret not in out
        for name in ("laptop", "ci", "x-token"):
            assert name in out


def test_json_is_for_scripts(shown: Told) -> None:
    result: dict[str, dict[str, Any]] = json.loads(shown("--json", CURSOR_GATEWAY_PORT="9000", **SECRETS))
    assert list(result) == [setting.name for setting in every_setting()]
    assert result["port"] == {
        "value": 9000,
        "from": "CURSOR_GATEWAY_PORT",
        "default": 8787,
        "environment": "CURSOR_GATEWAY_PORT",
        "takes": "a whole number, at least 0 and at most 65535",
        "meaning": "The port to listen on; 0 chooses a free one.",
    }
    assert result["api_keys"]["value"] == {"laptop": "…", "ci": "…"}


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    roots = ",".join(f"/srv/projects/{number}" for number in range(20))
    status, sent, error = on_a_terminal(
        "settings", COLUMNS=str(columns), LINES="24", CURSOR_GATEWAY_WORKSPACE_ROOTS=roots
    )
    assert (status, error) == (0, "")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", sent)
    assert plain != sent
    assert max(len(line) for line in plain.splitlines()) <= columns
    assert "/srv/projects/19" in plain


def test_a_value_cannot_draw_on_the_terminal(shown: Told) -> None:
    out = shown(CURSOR_GATEWAY_URL="http://x\x1b[2J\n\x07y")
    assert "\x1b" not in out
    assert "\x07" not in out


def test_a_wrong_setting_exits_with_2_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CURSOR_GATEWAY_PROT", "1")
    assert run(["settings"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("cursor-gateway: unknown setting 'CURSOR_GATEWAY_PROT'")
    assert error.count("\n") == 1


def test_the_file_can_be_named(tmp_path: Path, shown: Told) -> None:
    (tmp_path / "c.toml").write_text("port = 1234")
    assert "1234" in shown("--config", str(tmp_path / "c.toml"))


# --- key --------------------------------------------------------------------------------------------


def test_a_key_is_printed_alone_and_what_it_needs_beside_it(home: Path, usual: Path) -> None:
    ended = finished("key", "laptop", HOME=str(home))
    assert ended.returncode == 0
    key = ended.stdout.decode().removesuffix("\n")
    assert re.fullmatch(r"cgw_[A-Za-z0-9_-]{43}", key)
    result = ended.stderr.decode()
    assert key not in result
    assert str(usual) in result
    assert owner_of(key, {"laptop": hash_key(key)}) == "laptop"


@pytest.mark.parametrize("name", ["laptop", "ci-2.main_x", "1"])
def test_the_printed_lines_can_be_used_as_they_are(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["key", name]) == 0
    out, result = capsys.readouterr()
    expected = {name: hash_key(out.strip())}
    (table,) = re.findall(r"^  (\[api_keys\]\n.*)$", result, re.MULTILINE)
    (tmp_path / "c.toml").write_text(table)
    assert configuration(str(tmp_path / "c.toml"), environ={}).settings.api_keys == expected
    (variable,) = re.findall(r"^  (CURSOR_GATEWAY_API_KEYS)=", result, re.MULTILINE)
    (value,) = re.findall(rf"^  {variable}=(.*)$", result, re.MULTILINE)
    assert configuration(environ={variable: value}).settings.api_keys == expected


@pytest.mark.parametrize("name", ["", "a b", "ä", "a=b", "x" * 65, "cgw_key"])
def test_a_name_that_cannot_be_used_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["key", "--", name]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert "1 to 64 letters" in error


def test_the_owner_of_what_was_said_without_keys_gets_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["key", "local"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert "`local` is reserved" in error


def test_without_a_home_the_lines_name_no_file(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("cursor_gateway.cli.commands.operations.usual_file", lambda: None)
    assert run(["key", "a"]) == 0
    assert capsys.readouterr().err.startswith("In the configuration file:\n")


# --- the page ---------------------------------------------------------------------------------------


def test_every_setting_is_on_the_reference_page() -> None:
    page = PAGES["settings.md"]()
    rows = re.findall(r"^\| `(\w+)` +\| (.+?) +\| `(.*?)` +\| `(\w+)` +\| (.+?) +\|$", page, re.MULTILINE)
    shown = sorted(every_setting(), key=lambda setting: setting.is_advanced)
    assert [(name, variable) for name, _, _, variable, _ in rows] == [
        (setting.name, setting.variable) for setting in shown
    ]
    for (_, takes, default, _, meaning), setting in zip(rows, shown, strict=True):
        assert takes.startswith(setting.takes)
        assert json.loads(default) == setting.default
        assert meaning == setting.meaning
