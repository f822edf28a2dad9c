"""The checks of the packages fail when they should; `make dist` runs them on the real ones."""

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools.distribution import components, contents
from tools.distribution.components import Component, check_licences
from tools.distribution.contents import COMMIT, check_contents
from tools.distribution.programs import ROOT

INFO = "cursor_gateway-0.1.0.dist-info"
MANUAL = "cursor_gateway-0.1.0.data/data/share/man/man1/cursor-gateway.1"


@pytest.fixture(scope="module")
def package() -> set[str]:
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", "src/cursor_gateway"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    return {name.removeprefix("src/") for name in listed.stdout.splitlines()} | {COMMIT}


def wheel_of(folder: Path, names: set[str]) -> Path:
    path = folder / "cursor_gateway-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in {*names, f"{INFO}/METADATA", f"{INFO}/licenses/LICENSE", MANUAL}:
            archive.writestr(name, "")
    return path


def sdist_of(folder: Path, names: set[str]) -> Path:
    path = folder / "cursor_gateway-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in [*(f"src/{one}" for one in names), *contents._OF_SDIST, "PKG-INFO"]:
            tar.addfile(tarfile.TarInfo(f"cursor_gateway-0.1.0/{name}"))
    return path


def test_a_package_with_exactly_its_files_is_accepted(tmp_path: Path, package: set[str]) -> None:
    check_contents(wheel_of(tmp_path, package), sdist_of(tmp_path, package))


@pytest.mark.parametrize("missing", ["cursor_gateway/py.typed", COMMIT, "cursor_gateway/server/page/index.html"])
def test_a_file_that_is_missing_is_named(missing: str, tmp_path: Path, package: set[str]) -> None:
    with pytest.raises(SystemExit, match=f"missing .*{missing}"):
        check_contents(wheel_of(tmp_path, package - {missing}), sdist_of(tmp_path, package))


def test_a_test_in_a_package_is_named(tmp_path: Path, package: set[str]) -> None:
    with pytest.raises(SystemExit, match=r"whl.*unexpected \['tests/conftest.py'\]"):
        check_contents(wheel_of(tmp_path, package | {"tests/conftest.py"}), sdist_of(tmp_path, package))
    with pytest.raises(SystemExit, match=r"tar.gz.*unexpected \['src/tests/conftest.py'\]"):
        check_contents(wheel_of(tmp_path, package), sdist_of(tmp_path, package | {"tests/conftest.py"}))


def test_a_licence_that_nobody_has_decided_about_is_refused() -> None:
    known = Component("good", "1", ("MIT",), is_optional=False)
    check_licences([known])
    with pytest.raises(SystemExit, match=r"'bad'.*AGPL-3\.0-only"):
        check_licences([known, Component("bad", "1", ("AGPL-3.0-only",), is_optional=True)])


def audited(monkeypatch: pytest.MonkeyPatch, printed: str) -> str:
    def run(*_arguments: Any, **_options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess([], 0, printed, "cannot connect")

    monkeypatch.setattr("tools.distribution.components.subprocess.run", run)
    return components.audit(Path("requirements.txt"))


def test_a_known_vulnerability_fails_and_missing_data_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"name": "a", "version": "1", "vulns": []}
    skipped = {"name": "b", "skip_reason": "not found"}
    assert audited(monkeypatch, json.dumps({"dependencies": [good]})) == "no known vulnerability in 1 packages"
    assert audited(monkeypatch, json.dumps({"dependencies": [good, skipped]})).endswith("1 not found")
    assert audited(monkeypatch, json.dumps({"dependencies": [skipped]})).startswith("not done")
    assert audited(monkeypatch, "") == "not done: cannot connect"
    with pytest.raises(SystemExit, match="known vulnerabilities"):
        audited(monkeypatch, json.dumps({"dependencies": [{**good, "vulns": [{"id": "PYSEC-1"}]}]}))
