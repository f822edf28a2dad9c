"""Changes are reviewed like a pull request: kept or undone by file and by hunk, restored, copied and committed."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.gateways import RunningGateway, running_gateway
from tests.page.conftest import PHONE, Contexts, opened
from tests.page.using import answer_menu, answers, ask_and_wait


@pytest.fixture(scope="module")
def reviewing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One in which commands need no permission."""
    with running_gateway(tmp_path_factory.mktemp("reviewing"), settings={"force": "true"}) as running:
        yield running


@pytest.fixture
def workspace(reviewing: RunningGateway) -> Iterator[Path]:
    yield reviewing.workspace
    subprocess.run(["find", reviewing.workspace, "-mindepth", "1", "-delete"], check=True)


@pytest.fixture(params=["desktop", "phone"])
def page(request: pytest.FixtureRequest, contexts: Contexts, reviewing: RunningGateway) -> Page:
    context = contexts(permissions=["clipboard-read", "clipboard-write"], **(PHONE if request.param == "phone" else {}))
    return opened(context, reviewing.url)


@pytest.fixture
def wide_page(contexts: Contexts, reviewing: RunningGateway) -> Page:
    return opened(contexts(permissions=["clipboard-read", "clipboard-write"]), reviewing.url)


def run(page: Page, *steps: dict[str, object]) -> None:
    ask_and_wait(page, f"standin: program\n---\n{json.dumps(steps)}")


def edit(path: Path, text: str) -> dict[str, object]:
    return {"native": "edit", "args": {"path": str(path), "streamContent": text}}


def shell(command: str) -> dict[str, object]:
    return {"native": "shell", "args": {"command": command}}


def panel_of(page: Page) -> Locator:
    page.locator("#show-changes").click()
    return page.get_by_role("complementary", name="Changes")


def three_changes(workspace: Path) -> tuple[Path, list[str], list[str]]:
    file = workspace / "a.py"
    old = [f"x{number} = {number}\n" for number in range(60)]
    new = [*old]
    new[2], new[30], new[50] = "two\n", "thirty\n", "fifty\n"
    file.write_text("".join(old))
    return file, old, new


def test_changes_are_kept_and_undone_one_by_one(page: Page, workspace: Path) -> None:
    file, old, new = three_changes(workspace)
    run(page, edit(file, "".join(new)))
    panel = panel_of(page)
    expect(panel.locator(".counts").first).to_have_text("+3 −3")
    panel.get_by_role("button", name="Undo change 2 of a.py").click()
    expect(panel.locator(".counts").first).to_have_text("+2 −2")
    assert file.read_text() == "".join([*new[:30], old[30], *new[31:]])
    page.get_by_role("button", name="Undo", exact=True).last.click()  # of the toast
    expect(panel.locator(".counts").first).to_have_text("+3 −3")
    assert file.read_text() == "".join(new)
    panel.get_by_role("button", name="Keep change 1 of a.py").click()
    expect(panel.locator(".counts").first).to_have_text("+2 −2")
    panel.get_by_role("button", name="Undo file a.py").click()
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    expect(panel).to_contain_text("kept")
    assert file.read_text() == "".join([*old[:2], new[2], *old[3:]])


def test_the_button_counts_what_the_list_has(page: Page, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("1\n2\n")
    run(page, edit(file, "1\ntwo\n"), edit(file, "1\nII\n"), shell("seq 3 > made.txt"))
    button = page.locator("#show-changes")
    expect(button).to_have_text("Changes: 2 files +4 −1")
    answer_menu(answers(page)).get_by_role("button", name="Undo this turn's changes").click()
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    expect(button).to_have_text("Changes: 1 command")
    page.reload()
    expect(button).to_have_text("Changes: 1 command")
    run(page, edit(file, "1\n"))
    expect(button).to_have_text("Changes: 1 file −1")


def test_a_turn_is_restored_after_a_preview_and_that_is_undone(page: Page, workspace: Path) -> None:
    file = workspace / "notes.txt"
    file.write_bytes(b"alpha\r\nbeta")
    run(page, shell("printf '\\ngamma' >> notes.txt; mkdir made; echo 1 > made/one"))
    run(page, edit(workspace / "later.txt", "later\n"))
    answer_menu(answers(page).first).get_by_role("button", name="Restore files to before this turn").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("made/one delete +0 −1")
    expect(dialog).to_contain_text("later.txt delete +0 −1")
    dialog.get_by_text("Show the lines").click()
    expect(dialog.locator("pre")).to_contain_text("-gamma")
    dialog.get_by_role("button", name="Cancel").click()
    assert (workspace / "made/one").exists()
    answer_menu(answers(page).first).get_by_role("button", name="Restore files to before this turn").click()
    dialog.get_by_role("button", name="Restore").click()
    toast = page.locator("#toast")
    expect(toast).to_contain_text("Restored 3 files.")
    assert file.read_bytes() == b"alpha\r\nbeta"
    assert not (workspace / "made/one").exists()
    toast.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("alert")).to_contain_text("The files are as they were before you restored them.")
    assert (workspace / "made/one").read_text() == "1\n"


def test_any_turn_before_a_change_is_a_checkpoint(page: Page, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("1\n")
    ask_and_wait(page, "Hello")
    run(page, edit(file, "2\n"))
    expect(answer_menu(answers(page).first).get_by_text("Undo this turn's changes")).to_be_hidden()
    answers(page).first.get_by_role("button", name="Restore files to before this turn").click()
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    expect(page.locator("#toast")).to_contain_text("Restored a.txt.")
    assert file.read_text() == "1\n"


def test_what_a_person_changed_is_shown_before_it_is_lost(page: Page, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("1\n")
    run(page, edit(file, "2\n"))
    file.write_text("mine\n")
    answer_menu(answers(page).first).get_by_role("button", name="Undo this turn's changes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Changed since by somebody else; that is lost.")
    dialog.get_by_role("button", name="Cancel").click()
    assert file.read_text() == "mine\n"


def test_side_by_side_and_from_change_to_change(wide_page: Page, workspace: Path) -> None:
    page = wide_page
    file, _, new = three_changes(workspace)
    (workspace / "b.txt").write_text("one\n")
    run(page, edit(file, "".join(new)), edit(workspace / "b.txt", "two\n"))
    panel = panel_of(page)
    place = panel.locator("#change-place")
    for expected in ("1 of 3", "2 of 3", "3 of 3", "1 of 1"):
        panel.get_by_role("button", name="Next change").click()
        expect(place).to_have_text(expected)
    panel.press("Shift+F7")
    expect(place).to_have_text("3 of 3")
    expect(panel.get_by_text("Line 51")).to_be_in_viewport()
    toggle = panel.get_by_role("button", name="Side by side")
    toggle.click()
    expect(toggle).to_have_attribute("aria-pressed", "true")
    pair = panel.locator(".diffview.split .row", has_text="fifty")
    expect(pair.locator("del")).to_have_text("x50 = 50")
    expect(pair.locator("ins")).to_have_text("fifty")
    panel.get_by_role("button", name="Show 2").first.scroll_into_view_if_needed()
    hidden = panel.get_by_role("button", name="unchanged lines").first
    hidden.click()
    page.reload()
    page.locator("#show-changes").click()
    expect(toggle).to_have_attribute("aria-pressed", "true")


def test_a_long_diff_has_few_elements(wide_page: Page, workspace: Path) -> None:
    page = wide_page
    old = "".join(f"line {number}\n" for number in range(6000))
    new = "".join(f"{'changed' if number % 2 else 'line'} {number}\n" for number in range(6000))
    (workspace / "long.txt").write_text(old)
    run(page, edit(workspace / "long.txt", new))
    panel = panel_of(page)
    expect(panel.locator(".counts").first).to_have_text("+3000 −3000")
    expect(panel.get_by_text("changed 1", exact=True)).to_be_visible()
    assert panel.locator("*").count() < 1500
    panel.locator(".diffview").evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
    expect(panel.get_by_text("changed 5999")).to_be_visible()
    assert panel.locator("*").count() < 1500


def test_patches_are_copied_and_files_open_in_an_editor(wide_page: Page, workspace: Path) -> None:
    page = wide_page
    (workspace / "a b.txt").write_text("1\n2\n3\n")
    run(page, edit(workspace / "a b.txt", "1\n2\nthree\n"))
    panel = panel_of(page)
    link = panel.get_by_role("link", name="Open in Cursor")
    expect(link).to_have_attribute("href", f"cursor://file{workspace}/a%20b.txt:3")
    panel.get_by_label("Open in").select_option("VS Code")
    expect(panel.get_by_role("link", name="Open in VS Code")).to_have_attribute(
        "href", f"vscode://file{workspace}/a%20b.txt:3"
    )
    panel.get_by_role("button", name="Copy patch of a b.txt").click()
    expect(panel.get_by_text("Copied")).to_be_visible()
    patch = page.evaluate("navigator.clipboard.readText()")
    subprocess.run(["git", "apply", "-R", "--unsafe-paths", "-"], input=patch.encode(), cwd=workspace, check=True)
    assert (workspace / "a b.txt").read_text() == "1\n2\n3\n"


def test_changes_are_committed_after_a_question(wide_page: Page, workspace: Path, reviewing: RunningGateway) -> None:
    page = wide_page
    (reviewing.home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n")
    git = ["git", "-C", str(workspace), "-c", "user.name=A", "-c", "user.email=a@b"]
    (workspace / "a.txt").write_text("1\n")
    for words in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    run(page, edit(workspace / "a.txt", "2\n"))
    panel = panel_of(page)
    for answer in ("Cancel", "Commit"):
        panel.get_by_label("All changes", exact=True).click()
        panel.get_by_role("button", name="Commit these changes…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("On the branch main.")
        dialog.get_by_label("Message").fill("Count to two")
        dialog.get_by_role("button", name=answer).click()
        log = subprocess.run([*git, "log", "--format=%s"], check=True, capture_output=True, text=True).stdout
        if answer == "Cancel":
            assert log == "first\n"
    expect(page.get_by_role("alert")).to_contain_text("Committed 1 file to main as ")
    log = subprocess.run([*git, "log", "--format=%s %an"], check=True, capture_output=True, text=True).stdout
    assert log == "Count to two Ada\nfirst A\n"
    assert subprocess.run([*git, "status", "--short"], check=True, capture_output=True, text=True).stdout == ""


def test_changed_lines_have_colours_and_stay_the_same_text(wide_page: Page, workspace: Path) -> None:
    file = workspace / "a.py"
    file.write_text('def old():\n    """Text\n    of two lines."""\n    return 1\n')
    run(wide_page, edit(file, 'def new():\n    """Text\n    of two lines."""\n    return "<b>"\n'))
    rows = panel_of(wide_page).locator(".diffview .row")
    expect(rows.locator(".k").first).to_be_visible()
    expect(rows.locator("ins.code")).to_have_text(["def new():", '    return "<b>"'])
    expect(rows.locator("del.code")).to_have_text(["def old():", "    return 1"])
    expect(rows.locator("ins.code .k")).to_have_text(["def", "return"])
    wide_page.get_by_role("button", name="Side by side").click()
    expect(rows.locator("del.code .k")).to_have_text(["def", "return"])
