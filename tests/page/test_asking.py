"""What goes into a prompt: files by drop, paste and picker, names of files, commands, a model, a folder; and keys."""

import base64
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import PHONE, Contexts, both_sizes, opened
from tests.page.scripts import Script
from tests.page.using import (
    answers,
    ask,
    ask_and_wait,
    choose,
    choose_folder,
    documents,
    expect_state,
    prompt_box,
    turns,
)
from tests.server.conftest import invocation, unique

_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(params=["desktop", "phone"])
def any_page(request: pytest.FixtureRequest, contexts: Contexts, gateway: RunningGateway) -> Page:
    return opened(contexts(**(PHONE if request.param == "phone" else {})), gateway.url)


def attachments(page: Page) -> list[str]:
    return page.get_by_role("list", name="Attachments").get_by_role("listitem").all_inner_texts()


def give(page: Page, event: str, name: str, text: str) -> None:
    """A file by drop or paste."""
    page.evaluate(
        """([event, name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name, { type: "text/plain" }));
            const box = document.getElementById("message");
            const options = { bubbles: true, cancelable: true };
            box.dispatchEvent(event === "paste"
                ? new ClipboardEvent("paste", { clipboardData: data, ...options })
                : new DragEvent(event, { dataTransfer: data, ...options }));
        }""",
        [event, name, text],
    )


@both_sizes
@pytest.mark.parametrize("way", ["drop", "paste"])
def test_a_text_file_is_part_of_the_message(page: Page, way: str) -> None:
    mark = unique()
    give(page, way, "notes.txt", f"the {mark}")
    expect(page.get_by_role("list", name="Attachments")).to_have_text("notes.txt")
    ask_and_wait(page, "Read this")
    expect(answers(page)).to_contain_text(mark)
    expect(turns(page)).to_contain_text("notes.txt:")
    expect(page.get_by_role("list", name="Attachments")).to_be_hidden()


def test_an_image_is_sent_with_the_message(any_page: Page, gateway: RunningGateway, tmp_path: Path) -> None:
    mark = unique()
    (tmp_path / "dot.png").write_bytes(_PNG)
    (tmp_path / "gone.png").write_bytes(_PNG)
    with any_page.expect_file_chooser() as chooser:
        any_page.get_by_role("button", name="Attach files").click()
    chooser.value.set_files([tmp_path / "dot.png", tmp_path / "gone.png"])
    any_page.get_by_role("button", name="Remove gone.png").click()
    assert attachments(any_page) == ["dot.png"]
    ask_and_wait(any_page, mark)
    expect(any_page.get_by_role("img", name="Attached image")).to_have_count(1)
    assert ".png" in str(invocation(gateway, mark))


def test_a_file_that_is_neither_is_refused_with_a_reason(page: Page, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    page.locator("#files").set_input_files(tmp_path / "data.bin")
    expect(page.get_by_role("alert")).to_contain_text("data.bin was not attached: it is neither a text nor a PNG")
    assert attachments(page) == []


def test_names_of_files_are_completed(any_page: Page, gateway: RunningGateway) -> None:
    name = f"{unique()}.txt"
    (gateway.workspace / name).write_text("x\n")
    prompt_box(any_page).press_sequentially(f"Look at @{name[:12]}")
    expect(any_page.get_by_role("option", name=name)).to_be_visible()
    any_page.keyboard.press("Enter")
    expect(prompt_box(any_page)).to_have_value(f"Look at @{name} ")
    expect(any_page.get_by_role("option")).to_have_count(0)
    prompt_box(any_page).press_sequentially("and @no-such-file")
    any_page.keyboard.press("Enter")  # nothing to choose: it is sent
    expect_state(any_page, "completed")
    expect(documents(answers(any_page))).to_contain_text(f"@{name} and @no-such-file")


def test_a_command_chooses_the_mode(any_page: Page, gateway: RunningGateway) -> None:
    mark = unique()
    prompt_box(any_page).press_sequentially("/")
    expect(any_page.get_by_role("option")).to_have_count(5)
    prompt_box(any_page).press_sequentially("pl")
    any_page.keyboard.press("Tab")
    expect(any_page.get_by_role("button", name="Mode: Plan")).to_be_visible()
    expect(prompt_box(any_page)).to_have_value("")
    ask_and_wait(any_page, mark)
    argv = invocation(gateway, mark)["argv"]
    assert argv[argv.index("--mode") + 1] == "plan"


def test_a_folder_below_the_roots_is_chosen(any_page: Page, gateway: RunningGateway) -> None:
    mark = unique()
    folder = gateway.workspace / f"{mark}-folder"
    folder.mkdir()
    any_page.get_by_role("button", name="Folder:").click()
    any_page.get_by_role("combobox", name="Folder path").fill(f"{gateway.workspace}/{mark}")
    any_page.get_by_role("option", name=str(folder)).click()
    expect(any_page.get_by_role("button", name=f"Folder: {folder.name}")).to_be_visible()
    ask_and_wait(any_page, mark)
    assert str(folder) in str(invocation(gateway, mark))
    expect(any_page.get_by_role("button", name=f"Folder: {folder.name}")).to_be_disabled()  # it stays there
    any_page.goto(f"{gateway.url}/")
    any_page.reload()
    any_page.get_by_role("button", name="Folder:").click()
    expect(any_page.get_by_role("option", name=str(folder))).to_be_visible()  # it is remembered


def test_examples_fit_the_folder(page: Page, gateway: RunningGateway) -> None:
    examples = page.get_by_role("list", name="Examples").get_by_role("button")
    expect(examples).to_have_count(3)
    folder = gateway.workspace / unique()
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "test_one.py").write_text("x\n")
    choose_folder(page, str(folder))
    expect(examples.filter(has_text="Run the tests and fix what fails")).to_have_count(1)
    expect(examples.filter(has_text="Write a README")).to_have_count(1)
    page.get_by_role("list", name="Examples").get_by_role("button", name="Explain what this project does").click()
    expect_state(page, "completed")
    expect(answers(page)).to_contain_text("ask")


def test_a_folder_with_hooks_of_its_own_is_refused(page: Page, gateway: RunningGateway, watch: list[Watch]) -> None:
    """The prompt is not lost."""
    watch[0].allow("status of 403")
    folder = gateway.workspace / unique()
    folder.mkdir()
    (folder / ".mcp.json").touch()
    choose_folder(page, str(folder))
    ask(page, "hello")
    expect(page.get_by_role("alert")).to_contain_text(f'allow_workspace_hooks = ["{folder}"]')
    (folder / ".mcp.json").unlink()
    expect(prompt_box(page)).to_have_value("hello")
    page.get_by_role("button", name="Send", exact=True).click()
    expect_state(page, "completed")


def test_the_keys_work_from_the_prompt_after_escape(page: Page) -> None:
    expect(prompt_box(page)).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    prompt_box(page).focus()
    page.keyboard.press("Escape")
    expect(prompt_box(page)).not_to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    prompt_box(page).focus()
    page.keyboard.type("n?")
    expect(prompt_box(page)).to_have_value("n?")


def test_a_picker_is_used_with_the_keyboard(page: Page) -> None:
    page.get_by_role("button", name="Mode:").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Mode: Ask")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    choose(page, "Mode", "Agent")
    expect(page.get_by_role("button", name="Mode: Agent")).to_be_visible()


def test_what_is_typed_right_after_a_click_on_new_conversation_stays(page: Page, script: Script) -> None:
    ask_and_wait(page, script.say("Done.").prompt())
    page.evaluate("""() => {
        document.getElementById("new").click();
        const message = document.getElementById("message");
        message.value = "Typed at once";
        message.dispatchEvent(new Event("input"));
    }""")
    expect(page.get_by_role("heading", level=1)).to_have_text("New conversation")
    page.wait_for_function("() => new Promise((resolve) => setTimeout(() => resolve(true)))")  # later events, too
    expect(prompt_box(page)).to_have_value("Typed at once")
    page.go_back()
    expect(answers(page)).to_have_count(1)
    expect(prompt_box(page)).to_have_value("")
