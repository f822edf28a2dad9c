"""The files and folders of workspaces over HTTP."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import http_client


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("workspace")
    (home / "outside" / "secret").mkdir(parents=True)
    work = home / "work"
    for name in ("README.md", "src/app.py", "src/tests/test_app.py", "build/out.js"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x\n")
    (work / "repo").mkdir()
    (work / "link").symlink_to(home / "outside")
    repo = work / "repo"
    subprocess.run(["git", "init", "-q", repo], check=True)
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "a.log").write_text("x\n")
    (repo / "a.py").write_text("x\n")
    with running_gateway(home, has_agent=False) as running:
        yield running


def files(gateway: RunningGateway, **query: str) -> list[str]:
    with http_client(gateway) as client:
        reply = client.get("/v1/workspace/files", params=query)
        assert reply.status_code == 200, reply.text
        found: list[str] = reply.json()["files"]
        return found


def folders(gateway: RunningGateway, query: str) -> list[str]:
    with http_client(gateway) as client:
        found: list[str] = client.get("/v1/workspace/folders", params={"q": query}).json()["folders"]
        return found


def test_files_are_found_by_part_of_their_path_names_first(gateway: RunningGateway) -> None:
    assert files(gateway, q="app") == ["src/app.py", "src/tests/test_app.py"]
    assert files(gateway, q="SRC/")[0] == "src/app.py"
    assert files(gateway)[0] == "README.md"
    assert files(gateway, q="nothing like it") == []


def test_what_git_ignores_and_what_is_built_is_left_out(gateway: RunningGateway) -> None:
    assert files(gateway, workspace=str(gateway.workspace / "repo")) == [".gitignore", "a.py"]
    assert not files(gateway, q="out.js")


def test_files_outside_of_the_roots_are_not_listed(gateway: RunningGateway) -> None:
    with http_client(gateway) as client:
        for folder in (gateway.home, gateway.workspace / "link", gateway.workspace / ".."):
            assert client.get("/v1/workspace/files", params={"workspace": str(folder)}).status_code == 403


def test_folders_are_those_below_the_roots(gateway: RunningGateway) -> None:
    work = str(gateway.workspace)
    assert folders(gateway, "") == [work, f"{work}/build", f"{work}/repo", f"{work}/src"]
    assert folders(gateway, f"{work}/s") == [f"{work}/src"]
    assert folders(gateway, f"{work}/src/") == [f"{work}/src/tests"]
    assert folders(gateway, "src/") == [f"{work}/src/tests"]
    assert folders(gateway, str(gateway.home)) == [work]


@pytest.mark.parametrize("query", ["/", "/etc/", "../outside/", "link/", "a\0b", "~nobody-there/", "x" * 5000])
def test_nothing_is_disclosed_of_other_folders(gateway: RunningGateway, query: str) -> None:
    assert [found for found in folders(gateway, query) if not Path(found).is_relative_to(gateway.workspace)] == []
