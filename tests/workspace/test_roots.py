"""Workspaces: only folders at or below the roots, whatever links and dots a name is made of."""

import os
from pathlib import Path

import pytest

from cursor_gateway.errors import InvalidRequest, WorkspaceForbidden
from cursor_gateway.workspace.files import find_files
from cursor_gateway.workspace.roots import Workspaces


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """home (the default) with a folder and a file in it, other (a second root), and secret beside them."""
    for folder in ("home/project", "other/project", "secret"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home" / "file").touch()
    return tmp_path


def workspaces(tree: Path, *roots: str) -> Workspaces:
    return Workspaces(tree / "home", [tree / root for root in roots])


def test_no_name_is_the_default(tree: Path) -> None:
    assert workspaces(tree).find(None) == str(tree / "home")
    assert workspaces(tree, "other").find(None) == str(tree / "home")


@pytest.mark.parametrize("name", ["project", "./project", "project/../project/", "{home}/project", "{home}//project/."])
def test_folders_below_the_default_are_allowed_by_any_of_their_names(tree: Path, name: str) -> None:
    assert workspaces(tree).find(name.format(home=tree / "home")) == str(tree / "home" / "project")


def test_the_default_itself_is_allowed(tree: Path) -> None:
    assert workspaces(tree).find(".") == str(tree / "home")


def test_roots_take_the_place_of_the_default(tree: Path) -> None:
    allowed = workspaces(tree, "other")
    assert allowed.find(str(tree / "other" / "project")) == str(tree / "other" / "project")
    assert allowed.find("../other") == str(tree / "other")
    with pytest.raises(WorkspaceForbidden):
        allowed.find("project")


@pytest.mark.parametrize("name", ["..", "../secret", "{tree}", "/", "/etc", "../home2", "project/../../secret", "~"])
def test_what_lies_elsewhere_is_forbidden(tree: Path, name: str) -> None:
    (tree / "home2").mkdir()  # begins like the default, and is not below it
    with pytest.raises(WorkspaceForbidden) as caught:
        workspaces(tree).find(name.format(tree=tree))
    assert caught.value.param == "workspace"


def test_nobody_learns_what_exists_elsewhere(tree: Path) -> None:
    result = set()
    for name in ("../secret", "../missing", "/etc/passwd", "/etc/passwd/x", "~nobody-of-that-name/x"):
        with pytest.raises(WorkspaceForbidden) as caught:
            workspaces(tree).find(name)
        result.add(str(caught.value).replace(str(tree / "home" / name), "what was asked for"))
    assert len(result) == 1


def test_links_lead_where_they_lead(tree: Path) -> None:
    (tree / "home" / "out").symlink_to(tree / "secret")
    (tree / "home" / "in").symlink_to(tree / "home" / "project")
    (tree / "home" / "to-other").symlink_to(tree / "other")
    (tree / "home" / "circle").symlink_to(tree / "home" / "circle")
    assert workspaces(tree).find("in") == str(tree / "home" / "project")
    assert workspaces(tree, "home", "other").find("to-other/project") == str(tree / "other" / "project")
    for name in ("out", "out/x", "to-other"):
        with pytest.raises(WorkspaceForbidden):
            workspaces(tree).find(name)
    with pytest.raises((WorkspaceForbidden, InvalidRequest)):  # as the Python says that runs it
        workspaces(tree).find("circle")


def test_a_root_that_is_a_link_is_where_it_leads(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "other")
    assert workspaces(tree, "link").find(str(tree / "link" / "project")) == str(tree / "other" / "project")
    assert workspaces(tree, "link").find(str(tree / "other" / "project")) == str(tree / "other" / "project")


@pytest.mark.parametrize("name", ["missing", "file", "file/below", "x" * 300, "x/" * 3000])
def test_what_is_no_folder_is_reported_below_the_roots(tree: Path, name: str) -> None:
    with pytest.raises((InvalidRequest, WorkspaceForbidden)) as caught:
        workspaces(tree).find(name)
    assert caught.value.param == "workspace"


@pytest.mark.parametrize("name", ["", "a\0b", "\0"])
def test_what_can_be_no_path_is_refused(tree: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="must be the path of a folder"):
        workspaces(tree).find(name)


def test_half_a_character_is_no_name_of_a_folder(tree: Path) -> None:
    with pytest.raises((InvalidRequest, WorkspaceForbidden)):
        workspaces(tree).find("\ud800")


def test_a_name_that_is_not_utf_8_is_refused_and_never_listed(tree: Path) -> None:
    """Neither JSON nor the agent's arguments can contain it, also behind a link."""
    odd = os.fsencode(tree / "home") + b"/caf\xe9"
    try:
        os.mkdir(odd)
    except OSError:
        pytest.skip("the file system has no such names")
    (tree / "home" / "link").symlink_to(os.fsdecode(odd))
    os.symlink(tree / "home" / "project", odd + b" link")
    with pytest.raises(InvalidRequest, match="not valid UTF-8"):
        workspaces(tree).find("link")
    assert workspaces(tree).allowed("link") is None
    assert workspaces(tree).folders("", 10) == [str(tree / "home"), str(tree / "home" / "project")]


def test_nor_is_a_file_with_such_a_name(tree: Path) -> None:
    for folder, name in ((b"", b"caf\xe9.txt"), (b"/caf\xe9", b"in.txt"), (b"/project", b"caf\xc3\xa9.txt")):
        place = os.fsencode(tree / "home") + folder
        try:
            os.makedirs(place, exist_ok=True)
            Path(os.fsdecode(place + b"/" + name)).touch()
        except OSError:
            pytest.skip("the file system has no such names")
    assert find_files(str(tree / "home"), "", 10) == ["file", "project/café.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_may_not_be_looked_into_is_none(tree: Path) -> None:
    (tree / "home" / "closed" / "below").mkdir(parents=True)
    (tree / "home" / "closed").chmod(0)
    try:
        with pytest.raises(InvalidRequest):
            workspaces(tree).find("closed/below")
    finally:
        (tree / "home" / "closed").chmod(0o700)


def test_people_are_told_which_folders_are_allowed(tree: Path) -> None:
    assert workspaces(tree).summary == str(tree / "home")
    assert workspaces(tree, "home").summary == str(tree / "home")
    assert workspaces(tree, "home", "other").summary == (
        f"{tree / 'home'}; requests may name folders below {tree / 'other'}"
    )


def test_a_workspace_with_its_own_hooks_is_refused_unless_the_operator_says_otherwise(tree: Path) -> None:
    home = tree / "home"
    (home / ".mcp.json").touch()
    with pytest.raises(WorkspaceForbidden) as caught:
        Workspaces(home, []).check(str(home))
    assert f" {home}/.mcp.json. " in str(caught.value)
    assert f'`allow_workspace_hooks = ["{home}"]` in `config.toml`' in str(caught.value)
    Workspaces(home, [], refuse_hooks=False).check(str(home))
    (home / ".mcp.json").unlink()
    Workspaces(home, []).check(str(home))


def test_hooks_may_be_allowed_in_some_folders(tree: Path) -> None:
    repository = tree / "home" / "repository"
    folder = repository / "part"
    for place in (repository / ".git", repository / ".cursor", folder / ".cursor"):
        place.mkdir(parents=True)
    (folder / ".cursor" / "mcp.json").touch()
    Workspaces(tree / "home", [], allow_hooks=[folder]).check(str(folder))
    (repository / ".cursor" / "hooks.json").touch()  # above the folder that is allowed
    with pytest.raises(WorkspaceForbidden) as caught:
        Workspaces(tree / "home", [], allow_hooks=[folder]).check(str(folder))
    assert f"{repository}/.cursor/hooks.json" in str(caught.value)
    assert f'`allow_workspace_hooks = ["{folder}", "{repository}"]`' in str(caught.value)
    with pytest.raises(WorkspaceForbidden) as caught:  # one line allows both
        Workspaces(tree / "home", []).check(str(folder))
    assert f'`allow_workspace_hooks = ["{repository}"]`' in str(caught.value)
    Workspaces(tree / "home", [], allow_hooks=[repository]).check(str(folder))


def test_a_folder_that_is_only_mentioned_is_taken_if_it_is_allowed(tree: Path) -> None:
    allowed = workspaces(tree).allowed
    assert allowed("project") == str(tree / "home" / "project")
    assert [allowed(name) for name in ("", "\0", "/", "nothing", "file", "../secret")] == [None] * 6
