"""The built-in demo in; what the page shows while an answer arrives, as frames, out."""

import base64
import re
from pathlib import Path

from playwright.sync_api import CDPSession, Route, expect

from tests.gateways import running_gateway
from tests.page.browsers import running_browser
from tools.films.film import Frame, strip

_WIDTH, _HEIGHT = 1040, 620
_STEP = 1000  # milliseconds
_QUALITY = 45
_MOST = 40  # frames


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
    inside = strip(_merged(frames), width=_WIDTH, height=_HEIGHT)
    border = f'<rect x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8" fill="none" stroke="#8883"/>'
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    label = "The page while the agent works"
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
