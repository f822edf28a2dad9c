"""What was sent with a message stays visible, and so do images in answers; what cannot be sent is refused."""

import struct
import zlib
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import both_sizes
from tests.page.scripts import Script
from tests.page.using import ask_and_wait, of_type, turns
from tests.server.conftest import unique


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" + b"\x20\x40\x80" * 2 + b"\0" + b"\x80\x40\x20" * 2)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@both_sizes
def test_what_was_sent_is_still_there_after_a_reload(page: Page, tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(png())
    (tmp_path / "notes.txt").write_text("one\n```\ntwo\n```\n")
    page.locator("#files").set_input_files([tmp_path / "shot.png", tmp_path / "notes.txt"])
    expect(page.get_by_role("list", name="Attachments").get_by_role("listitem")).to_have_count(2)
    words = f"What is this? {unique()}"
    ask_and_wait(page, words)
    for _ in range(2):
        asked = turns(page).locator(".asked")
        expect(asked.locator("> div").first).to_have_text(words)
        expect(asked.get_by_role("img", name="Attached image 1")).to_have_js_property("naturalWidth", 2)
        asked.get_by_text("notes.txt").click()
        expect(asked.locator("pre")).to_have_text("one\n```\ntwo\n```")
        page.reload()


def test_a_message_that_ends_with_code_has_no_file(page: Page) -> None:
    ask_and_wait(page, f"{unique()}\n\nHere is the code:\n```js\nx\n```")
    expect(turns(page).locator(".asked summary")).to_have_count(0)
    expect(turns(page).locator(".asked")).to_contain_text("```js")


def test_a_pdf_is_refused_with_a_reason(page: Page, tmp_path: Path) -> None:
    for name in ("paper.pdf", "renamed.txt"):
        (tmp_path / name).write_bytes(b"%PDF-1.7\n1 0 obj\n")
        page.locator("#files").set_input_files(tmp_path / name)
        expect(page.get_by_role("alert")).to_contain_text(f"{name} was not attached: a PDF cannot be sent")
    expect(page.get_by_role("list", name="Attachments").get_by_role("listitem")).to_have_count(0)


def test_images_of_the_workspace_are_shown_in_answers(
    page: Page, gateway: RunningGateway, script: Script, watch: list[Watch]
) -> None:
    watch[0].allow("status of 404")
    name = f"{unique()}.png"
    (gateway.workspace / name).write_bytes(png())
    (gateway.workspace / "evil.png").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    text = f"![The page]({name})\n\n![gone](nowhere.png) ![fake](evil.png) ![far](https://example.com/a.png)\n"
    ask_and_wait(page, script.say(*text).prompt())
    for _ in range(2):
        prose = of_type(page, "text")
        expect(prose.get_by_role("img", name="The page")).to_have_js_property("naturalWidth", 2)
        expect(prose.get_by_text("nowhere.png")).to_be_visible()
        expect(prose.get_by_text("evil.png")).to_be_visible()
        expect(prose.get_by_role("link", name="far")).to_be_visible()
        expect(prose.locator("img")).to_have_count(1)
        page.reload()


@both_sizes
def test_code_stays_in_its_list_item_while_it_comes_and_later(page: Page, script: Script) -> None:
    text = "1. Install:\n\n   ```sh\n   pip install x\n   ```\n\n   Then restart.\n\n2. Go.\n"
    ask_and_wait(page, script.say(*text).prompt())
    for _ in range(2):
        code = of_type(page, "code_block").locator("figure")
        after = of_type(page, "text").last.get_by_text("Then restart.")
        expect(after).to_be_visible()
        assert abs(_left(page, code) - _left(page, after)) < 2
        assert _left(page, code) > _left(page, of_type(page, "text").first.locator("ol"))
        assert after.evaluate("it => getComputedStyle(it.closest('li')).listStyleType") == "none"
        page.reload()


def _left(page: Page, place: object) -> float:
    box = place.bounding_box()  # type: ignore[attr-defined]
    assert box is not None
    return float(box["x"])


def test_output_is_coloured_and_starts_at_its_end(page: Page, script: Script) -> None:
    lines = "".join(f"line {number}\n" for number in range(200))
    ask_and_wait(page, script.shell("make test", f"{lines}\x1b[31mFAILED\x1b[0m at the end\n").prompt())
    output = of_type(page, "terminal_command").locator(".output")
    expect(output.get_by_text("FAILED")).to_be_in_viewport()
    colour = output.get_by_text("FAILED").evaluate("it => getComputedStyle(it).color")
    assert colour != output.evaluate("it => getComputedStyle(it).color")
    expect(output.get_by_text("line 3", exact=True)).not_to_be_in_viewport()
    of_type(page, "terminal_command").get_by_text("Show all 201 lines").click()
    assert output.evaluate("it => it.scrollHeight === it.clientHeight")


def test_many_steps_in_a_row_are_one_line(page: Page, script: Script) -> None:
    for number in range(120):
        script.read(f"src/{number}.py", "x")
    ask_and_wait(page, script.prompt())
    for _ in range(2):
        expect(page.locator("details.steps")).to_have_count(1)
        expect(page.locator("details.steps > summary")).to_contain_text("120 steps")
        page.reload()
