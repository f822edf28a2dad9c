"""`cursor-gateway connect`: what is printed, what is written, and that it can be taken back."""

import json
import os
import stat
from pathlib import Path

import pytest

from cursor_gateway.cli.clients.base import ConfigFolder, JsonFile, ListItems, NewFile, Steps, YamlFile
from cursor_gateway.cli.clients.table import CLIENTS
from cursor_gateway.cli.kept_files import path_of
from tests.agent.install import install
from tests.cli.clients.endpoints import PLAIN
from tests.cli.processes import finished

KEPT = {name: client.keep(PLAIN) for name, client in CLIENTS.items()}
JSON = [name for name, kept in KEPT.items() if isinstance(kept, JsonFile)]
YAML = [name for name, kept in KEPT.items() if isinstance(kept, YamlFile)]
NEW = [name for name, kept in KEPT.items() if isinstance(kept, NewFile)]
STEPS = [name for name, kept in KEPT.items() if isinstance(kept, Steps)]
KNOBS = {"models": ["auto - Auto", "gpt-5-mini - GPT-5 Mini"]}
MINE = """{
\t// mine
\t"theme": "dark", /* very */
\t"provider": {
\t\t"mine": {}
\t},
}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [*os.environ]:
        if name.startswith(("CURSOR_", "XDG_", "CLAUDE_", "CODEX_", "PI_", "LLM_", "CONTINUE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("CURSOR_GATEWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CURSOR_GATEWAY_PORT", "1")  # nothing listens there
    install(tmp_path / "bin", knobs=KNOBS)
    return tmp_path


def connect(*arguments: str, status: int = 0, **environment: str) -> tuple[str, str]:
    ended = finished("connect", *arguments, stdin=b"", **environment)
    assert b"Traceback" not in ended.stderr
    assert ended.returncode == status, ended.stderr.decode()
    return ended.stdout.decode(), ended.stderr.decode()


def file_of(name: str) -> Path:
    kept = KEPT[name]
    assert not isinstance(kept, Steps)
    return path_of(kept)


def prepared(path: Path, text: str = MINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


# --- printing -------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", CLIENTS)
def test_the_configuration_is_printed_and_nothing_is_written(name: str, home: Path) -> None:
    out, result = connect(name, CURSOR_GATEWAY_API_KEY="cgw_mine")
    assert "http://127.0.0.1:1" in out
    assert CLIENTS[name].title in result
    assert "cgw_mine" in out or name in ("zed", "llm")  # they ask for it
    if name in JSON:
        json.loads(out)
    if name not in STEPS:
        assert str(file_of(name)) in result
        assert not file_of(name).exists()


def test_the_models_are_listed(home: Path) -> None:
    out, _ = connect("pi")
    models = json.loads(out)["providers"]["cursor-gateway"]["models"]
    assert [model["id"] for model in models] == ["auto", "gpt-5-mini"]


def test_without_a_list_there_is_the_default(home: Path) -> None:
    install(home / "bin", knobs={"models": []})
    out, result = connect("pi", CURSOR_GATEWAY_MODEL="opus-9")
    models = json.loads(out)["providers"]["cursor-gateway"]["models"]
    assert [model["id"] for model in models] == ["opus-9"]
    assert "only the default is listed" in result


def test_a_port_that_changes_cannot_be_kept() -> None:
    _, result = connect("pi", status=2, CURSOR_GATEWAY_PORT="0")
    assert "set `port`" in result


# --- writing, and back ----------------------------------------------------------------------------------


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("text", [MINE, "{}", '{"a":1}\r\n', ""])
def test_written_and_undone_a_file_has_the_same_bytes(name: str, text: str, home: Path) -> None:
    file = prepared(file_of(name), text)
    file.chmod(0o640)
    shown, result = connect(name, "--write")
    written = file.read_bytes()
    assert "http://127.0.0.1:1" in written.decode()
    assert all(part in written.decode() for part in ("// mine", "/* very */", '"mine": {}') if part in text)
    assert "+" in shown
    backup = Path(f"{file}.cursor-gateway-backup")
    assert str(backup) in result
    assert backup.read_bytes() == text.encode()
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o640
    _, result = connect(name, "--write")
    assert "connected already" in result
    assert file.read_bytes() == written
    connect(name, "--undo")
    assert file.read_bytes() == text.encode()
    assert not backup.exists()


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", [*JSON, *YAML, *NEW])
def test_a_file_that_was_not_there_is_gone_again(name: str, home: Path) -> None:
    connect(name, "--write")
    file = file_of(name)
    assert "http://127.0.0.1:1" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600  # it may hold a key
    connect(name, "--undo")
    assert not file.exists()
    _, result = connect(name, "--undo", status=2)
    assert "nothing to undo" in result


def test_what_the_user_added_since_stays(home: Path) -> None:
    file = prepared(file_of("opencode"))
    connect("opencode", "--write")
    file.write_text(file.read_text().replace('"theme": "dark"', '"theme": "light"'))
    connect("opencode", "--undo")
    assert file.read_text() == MINE.replace("dark", "light")


def test_what_was_made_and_then_filled_by_the_user_stays(home: Path) -> None:
    connect("pi", "--write")
    file = file_of("pi")
    whole = json.loads(file.read_text())
    whole["providers"]["mine"] = {}
    file.write_text(json.dumps(whole))
    connect("pi", "--undo")
    assert json.loads(file.read_text()) == {"providers": {"mine": {}}}


def test_another_address_is_undone_to_the_beginning(home: Path) -> None:
    text = '{"env": {"ANTHROPIC_BASE_URL": "https://mine"}}'
    file = prepared(file_of("claude"), text)
    connect("claude", "--write")
    connect("claude", "--write", CURSOR_GATEWAY_PORT="2")
    assert json.loads(file.read_text())["env"]["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:2"
    connect("claude", "--undo")
    assert file.read_text() == text


def test_a_link_stays_a_link(home: Path) -> None:
    real = prepared(home / "dotfiles" / "opencode.json")
    file = file_of("opencode")
    file.parent.mkdir(parents=True)
    file.symlink_to(real)
    connect("opencode", "--write")
    assert file.is_symlink()
    assert "cursor-gateway" in real.read_text()
    connect("opencode", "--undo")
    assert real.read_text() == MINE


def test_a_file_of_json_with_comments_is_found_under_its_own_name(home: Path) -> None:
    file = prepared(file_of("opencode").with_suffix(".jsonc"))
    connect("opencode", "--write")
    assert "cursor-gateway" in file.read_text()
    assert not file.with_suffix(".json").exists()


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{", "[]", '{"provider": 1}', "\ufeff{}"])
def test_what_cannot_be_merged_is_printed_instead(text: str, home: Path) -> None:
    file = prepared(file_of("opencode"), text)
    out, result = connect("opencode", "--write", status=2)
    assert "cursor-gateway" in json.loads(out)["provider"]
    assert "add the configuration above yourself" in result
    assert file.read_text() == text


def test_a_file_that_is_not_text(home: Path) -> None:
    prepared(file_of("opencode")).write_bytes(b"\xff")
    _, result = connect("opencode", "--write", status=2)
    assert "not UTF-8" in result


@pytest.mark.parametrize(
    ("name", "text"), [*((name, "mine: 1\n") for name in NEW), *((name, "? 1\n") for name in YAML)]
)
def test_a_file_that_cannot_be_merged_is_not_overwritten(name: str, text: str, home: Path) -> None:
    file = prepared(file_of(name), text)
    out, result = connect(name, "--write", status=2)
    assert "http://127.0.0.1:1" in out
    assert "add the configuration above yourself" in result
    assert file.read_text() == text


@pytest.mark.parametrize("name", YAML)
def test_a_yaml_file_keeps_what_is_there_and_has_it_back(name: str, home: Path) -> None:
    kept = KEPT[name]
    is_list = isinstance(kept, YamlFile) and isinstance(kept.entries, ListItems) and not kept.entries.key
    text = "# mine\n- model_id: mine  # very\n" if is_list else "# mine\nname: mine  # very\nmodels:\n- name: mine\n"
    file = prepared(file_of(name), text)
    connect(name, "--write")
    written = file.read_text()
    assert "http://127.0.0.1:1" in written
    assert written.startswith(text.partition("very\n")[0])
    assert "connected already" in connect(name, "--write")[1]
    file.write_text(f"# more\n{written}")
    connect(name, "--undo")
    assert file.read_text() == f"# more\n{text}"
    assert not Path(f"{file}.cursor-gateway-backup").exists()


def test_two_clients_with_one_file_add_their_models_once(home: Path) -> None:
    file = prepared(file_of("cn"), "name: mine\nmodels:\n  - name: mine\n")
    connect("cn", "--write")
    written = file.read_text()
    assert "connected already" in connect("continue", "--write")[1]
    assert file.read_text() == written


def test_a_new_file_that_the_user_changed_is_not_removed(home: Path) -> None:
    connect("codex", "--write")
    file = file_of("codex")
    file.write_text(file.read_text() + "# mine\n")
    _, result = connect("codex", "--undo", status=2)
    assert "was changed since" in result
    assert file.exists()


def test_a_file_that_is_gone_is_undone_already(home: Path) -> None:
    connect("codex", "--write")
    file_of("codex").unlink()
    connect("codex", "--undo")


def test_a_broken_file_is_not_undone(home: Path) -> None:
    connect("pi", "--write")
    file_of("pi").write_text("{")
    _, result = connect("pi", "--undo", status=2)
    assert "take the configuration out yourself" in result


@pytest.mark.parametrize("name", STEPS)
def test_what_has_no_file_is_only_printed(name: str) -> None:
    out, result = connect(name, "--write", status=2)
    assert "http://127.0.0.1:1" in out
    assert "has no file" in result


def test_a_folder_that_cannot_be_written(home: Path) -> None:
    (home / ".codex").write_text("a file")
    _, result = connect("codex", "--write", status=2)
    assert "cannot be" in result


def test_one_of_both() -> None:
    _, result = connect("pi", "--write", "--undo", status=2)
    assert "cannot be combined" in result


# --- where files are ------------------------------------------------------------------------------------


def test_where_a_file_is() -> None:
    folder = ConfigFolder("~/.config/x", "X_HOME", below_config="x", macos="~/Library/x")
    file = NewFile(folder, "x.yml", "")
    assert path_of(file, {}, "linux") == Path.home() / ".config/x/x.yml"
    assert path_of(file, {"XDG_CONFIG_HOME": "/c"}, "linux") == Path("/c/x/x.yml")
    assert path_of(file, {"XDG_CONFIG_HOME": "/c"}, "darwin") == Path.home() / "Library/x/x.yml"
    assert path_of(file, {"XDG_CONFIG_HOME": "/c", "X_HOME": "/x"}, "darwin") == Path("/x/x.yml")
    assert path_of(NewFile(ConfigFolder("~"), "y", ""), {"XDG_CONFIG_HOME": "/c"}, "darwin") == Path.home() / "y"


# --- keys -----------------------------------------------------------------------------------------------


def test_a_file_that_gets_a_key_is_the_users_alone_and_the_key_is_not_printed(home: Path) -> None:
    path = prepared(file_of("opencode"))
    path.chmod(0o644)
    for arguments in (["opencode", "--write"], ["opencode", "--undo"]):
        printed, said = connect(*arguments, CURSOR_GATEWAY_API_KEY="cgw_secret_key_of_mine")
        assert "cgw_secret_key_of_mine" not in printed + said
        if "--write" in arguments:
            assert "cgw_secret_key_of_mine" in path.read_text()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == MINE


def test_without_a_key_a_file_keeps_its_mode(home: Path) -> None:
    path = prepared(file_of("opencode"))
    path.chmod(0o644)
    connect("opencode", "--write")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_what_was_written_through_a_dangling_link_is_removed(home: Path) -> None:
    path, target = file_of("opencode"), home / "elsewhere" / "opencode.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    connect("opencode", "--write")
    assert target.is_file()
    connect("opencode", "--undo")
    assert not target.exists()
    assert path.is_symlink()


@pytest.mark.parametrize("name", CLIENTS)
def test_no_client_is_told_of_cursors_own_key(name: str) -> None:
    """Nor given a provider whose name makes it read that key: Zed would."""
    client = CLIENTS[name]
    shown = repr(KEPT[name]) + (repr(client.launch.start(PLAIN, "/x")) if client.launch is not None else "")
    assert "CURSOR_API_KEY" not in shown
    kept = KEPT[name]
    names = [path[-1] for path, _ in kept.values] if isinstance(kept, JsonFile) else []
    assert not {"cursor", "Cursor"} & set(names)


def test_the_menus_of_jetbrains_have_their_names() -> None:
    """It was renamed in 2026.1."""
    steps = KEPT["jetbrains"]
    assert isinstance(steps, Steps)
    assert "Providers & API keys (Models & API keys before 2026.1)" in steps.lines[0]


def test_zed_does_not_send_cursors_own_key() -> None:
    """Zed reads the key of a provider from the variable that has its name."""
    kept = KEPT["zed"]
    assert isinstance(kept, JsonFile)
    ((path, _),) = kept.values
    assert path[-1].upper().replace("-", "_").replace(" ", "_") + "_API_KEY" != "CURSOR_API_KEY"
