"""A gateway in; what the page shows while an answer arrives, or while an agent waits for its user, as a film, out."""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import CDPSession, Page, Route, expect

from tests.backend.conftest import runtime_gateway
from tests.backend.server import Backend
from tests.gateways import RunningGateway, running_gateway
from tests.page.browsers import running_browser
from tests.server.test_cli_hooks import verified
from tools.films.film import Frame, strip

_WIDTH, _HEIGHT = 1040, 620
_STEP = 1200  # milliseconds: with shorter ones, the film of the page is larger than its test allows
_QUALITY = 45
_MOST = 40  # frames
HOME = "/home/dev"
# As (pattern, replacement) of JavaScript.
_SAME = [
    [r" standin:[^]*$", ""],
    [r"\b\d\d:\d\d\b", "10:30"],
    [r"^\d+ ms$", "0.9 s"],
]
_QUESTIONS = [
    {"question": "Which folders may go?", "options": ["old/", "drafts/", "notes/"], "multiple": True},
    {"question": "When?"},
]
_TIDIED = [
    {"say": "Two things I cannot know."},
    {"call": "ask_user", "args": {"title": "Before I begin", "questions": _QUESTIONS}},
    {"say": "I will move `old/` to the archive next Friday, and leave the rest."},
]
_CHECKED = [
    {"say": "Running the command. "},
    {"native": "shell", "args": {"command": "python3 check.py"}},
    {"say": "All checks pass."},
]
_WAITING = {
    "Run the checks": f"standin: program\n---\n{json.dumps(_CHECKED)}",
    "Tidy up my notes": f"standin: program\n---\n{json.dumps(_TIDIED)}",
    "Plan the move to Postgres": "standin: plan",
}


def page_film(home: Path, browser_program: str, prompt: str) -> str:
    frames: list[Frame] = []
    with (
        running_gateway(home, has_agent=False) as gateway,
        running_browser(browser_program) as browser,
        browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}, timezone_id="UTC") as context,
    ):
        context.route("**/health", _with_folder)
        page = context.new_page()
        session = context.new_cdp_session(page)
        page.goto(gateway.url)
        box = page.get_by_role("textbox", name="Message to the agent")
        expect(page.get_by_role("button", name=prompt)).to_be_visible()
        frames.append(_shot(session, 1.5))
        box.fill(prompt)
        frames.append(_shot(session, 0.8))
        page.keyboard.press("Enter")
        done = page.locator('section.answer [data-run="completed"]')
        while not done.count() and len(frames) < _MOST:
            page.wait_for_timeout(_STEP)
            frames.append(_shot(session, _STEP / 1000))
        expect(done).to_have_count(1)
        frames.append(_shot(session, 3.0))
        page.get_by_role("button", name=re.compile("^Changes: ")).click()
        page.wait_for_timeout(_STEP)
        frames.append(_shot(session, 4.0))
    return _film(frames, "The page while the agent works")


@contextmanager
def gateway_of(backend: str, home: Path) -> Iterator[RunningGateway]:
    """With the stand-in agent; for the SDK, with Cursor's own runtime and a mock of its servers."""
    match backend:
        case "acp":
            with running_gateway(home) as gateway:
                yield gateway
        case "cli":
            verified(home / "data")
            with running_gateway(home, settings={"source": "cli", "approvals": "hooks"}) as gateway:
                yield gateway
        case _:
            with Backend() as servers, runtime_gateway(home, servers, force="false") as gateway:
                yield gateway


def waiting_film(backend: str, home: Path, browser_program: str) -> str:
    """The agent asks for permission, then with a form, then about a plan (`acp`), and goes on in the same run."""
    frames: list[Frame] = []
    prompts = list(_WAITING)[: 3 if backend == "acp" else 2]
    with (
        gateway_of(backend, home) as gateway,
        running_browser(browser_program) as browser,
        browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}, timezone_id="UTC") as context,
    ):
        (gateway.workspace / "check.py").write_text('print("3 checks passed")\n')
        context.route("**/health", _with_folder)
        context.route("**/v1/chat", _answered)
        page = context.new_page()
        session = context.new_cdp_session(page)
        page.goto(gateway.url)

        def shot(seconds: float) -> None:
            page.wait_for_timeout(600)  # until the sidebar has followed
            tidy(page, gateway.workspace)
            frames.append(_shot(session, seconds))

        for number, prompt in enumerate(prompts, 1):
            page.get_by_role("textbox", name="Message to the agent").fill(prompt)
            page.keyboard.press("Enter")
            expect(page.locator('section.answer [data-run="waiting"]')).to_have_count(1)
            shot(3.0)
            if number == 2:
                page.get_by_role("checkbox", name="old/").check()
                page.get_by_role("textbox", name="Your answer").last.fill("Next Friday")
                shot(2.0)
            page.get_by_role("button", name=("Allow once", "Answer", "Accept")[number - 1], exact=True).click()
            expect(page.locator('section.answer [data-run="completed"]')).to_have_count(number)
            shot(2.5)
    return _film(frames, f"The page while an agent waits for its user ({backend})")


def tidy(page: Page, workspace: Path) -> None:
    """Replaces what differs from run to run, and what only the stand-in reads."""
    page.evaluate(
        """([workspace, home, patterns]) => {
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                let text = walker.currentNode.data.replaceAll(workspace, home);
                for (const [pattern, by] of patterns) text = text.replace(new RegExp(pattern), by);
                if (text !== walker.currentNode.data) walker.currentNode.data = text;
            }
        }""",
        [str(workspace), HOME, _SAME],
    )


def _answered(route: Route) -> None:
    """For `POST /v1/chat`: adds what makes the stand-in do what is asked."""
    body = json.loads(route.request.post_data or "{}")
    route.continue_(post_data=json.dumps({**body, "message": f"{body['message']} {_WAITING[body['message']]}"}))


def _film(frames: list[Frame], label: str) -> str:
    inside = strip(_merged(frames), width=_WIDTH, height=_HEIGHT)
    border = f'<rect x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8" fill="none" stroke="#8883"/>'
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">{inside}{border}</svg>\n'


def _with_folder(route: Route) -> None:
    """Not the temporary one of this run."""
    reply = route.fetch()
    route.fulfill(response=reply, body=re.sub(r'"workspace":"[^"]*"', '"workspace":"/home/dev/measures"', reply.text()))


def _shot(session: CDPSession, seconds: float) -> Frame:
    data = session.send("Page.captureScreenshot", {"format": "webp", "quality": _QUALITY})["data"]
    assert base64.b64decode(data)[8:12] == b"WEBP"
    return Frame(seconds, f'<image width="{_WIDTH}" height="{_HEIGHT}" href="data:image/webp;base64,{data}"/>')


def _merged(frames: list[Frame]) -> list[Frame]:
    merged: list[Frame] = []
    for frame in frames:
        if merged and merged[-1].content == frame.content:
            merged[-1] = Frame(merged[-1].seconds + frame.seconds, frame.content)
        else:
            merged.append(frame)
    return merged
