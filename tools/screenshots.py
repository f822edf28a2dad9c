"""The demo's recordings in, pictures of the page's main states out (docs/images/page-*.png).

Run it as `python -m tools.screenshots`. Window, colours, clock and recordings are always the same, nothing moves, and
what depends on the machine (folders, times, how fast it was) is replaced in the gateway's replies.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.gateways import running_gateway
from tests.page.browsers import PROGRAMS, TIMEOUT_MS, browser_program, running_browser
from tests.page.conftest import player_settings
from tests.page.scripts import Script
from tests.page.using import ask_and_wait, choose, of_type

_IMAGES = Path(__file__).parent.parent / "docs" / "images"
_WIDE = {"width": 1280, "height": 800}
_PHONE = {"width": 390, "height": 844}
_NOW = datetime(2026, 2, 23, 10, 30, tzinfo=UTC)
_EARLIER = [  # and their modes; the oldest first
    ("Explain how the retries work", "ask"),
    ("Fix the failing tests", "agent"),
    ("Store the books in a database", "agent"),
    ("Plan a search for the bookshelf", "plan"),
]
_LAST = "Implement JWT authentication"
_TOOK = (38_030, 9_812, 6_950, 21_340, 14_207)  # milliseconds, the newest first: about what the recordings took
_HELD = 103  # the line of its recording before which the agent is held: the tests run once more


def main() -> None:
    program = browser_program()
    if program is None:
        sys.exit(f"There is no browser: none of {', '.join(PROGRAMS)} is on PATH.")
    with tempfile.TemporaryDirectory() as folder, running_browser(program) as browser:
        _picture_demo(browser, Path(folder) / "demo")
        _picture_streaming(browser, Path(folder) / "agent")
    for picture in sorted(_IMAGES.glob("page-*.png")):
        print(f"{picture.name}: {picture.stat().st_size:,} bytes")  # noqa: T201 -- a command's answer


# --- the pictures ---------------------------------------------------------------------------------------


def _picture_demo(browser: Browser, home: Path) -> None:
    settings = {"replay_speed": "0"}
    with running_gateway(home, has_agent=False, settings=settings) as gateway, _window(browser) as context:
        page = _opened(context, gateway.url)
        expect(page.get_by_role("button", name=_LAST)).to_be_visible()
        _take(page, "new")
        for prompt, mode in _EARLIER:
            page.goto(f"{gateway.url}/#/")
            choose(page, "Mode", mode.capitalize())
            ask_and_wait(page, prompt)
        page.goto(f"{gateway.url}/#/")
        choose(page, "Mode", "Agent")
        ask_and_wait(page, _LAST)
        expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(len(_EARLIER) + 1)
        answer = page.url
        expect(page.get_by_role("button", name="Changes: 4 files")).to_be_visible()
        _show(page, "plan")
        _take(page, "answer")
        page.emulate_media(color_scheme="dark")
        _take(page, "answer-dark")
        page.emulate_media(color_scheme="light")
        page.get_by_role("link", name="Runs").click()
        expect(page.get_by_role("table")).to_be_visible()
        _take(page, "runs")
        with _window(browser, viewport=_PHONE, device_scale_factor=1.5, is_mobile=True, has_touch=True) as phone:
            page = _opened(phone, answer)
            expect(of_type(page, "plan")).to_be_attached()
            _show(page, "plan")
            _take(page, "phone")


def _picture_streaming(browser: Browser, home: Path) -> None:
    with running_gateway(home, settings=player_settings(home)) as gateway, _window(browser) as context:
        script = Script(home).demo("jwt_authentication", {_HELD + 1: "end"})
        played = script.unfinished_prompt(_LAST)
        context.route("**/v1/chat", lambda route: _as_played(route, played))
        page = _opened(context, gateway.url)
        page.get_by_role("textbox", name="Message to the agent").fill(_LAST)
        page.keyboard.press("Enter")
        expect(of_type(page, "terminal_command").last).to_have_attribute("data-state", "running")
        expect(of_type(page, "terminal_command")).to_have_count(3)
        expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(1)
        _take(page, "streaming")
        script.open("end")


def _as_played(route: Route, played: str) -> None:
    """What is seen is the prompt of a person; what the stand-in is told is the file to play."""
    body = json.loads(route.request.post_data or "{}")
    reply = route.fetch(post_data=json.dumps({**body, "message": played}))
    route.fulfill(response=reply, body=_same_everywhere(reply.text()))


def _show(page: Page, type: str) -> None:
    """A document of that type, below the top of the window."""
    page.mouse.move(0, 0)
    of_type(page, type).first.evaluate("one => scrollTo(0, Math.round(one.getBoundingClientRect().top + scrollY) - 72)")


def _take(page: Page, name: str) -> None:
    page.evaluate("document.activeElement?.blur()")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.screenshot(path=_IMAGES / f"page-{name}.png", animations="disabled", caret="hide")


# --- the same every time --------------------------------------------------------------------------------


@contextmanager
def _window(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    usual = {"viewport": _WIDE, "color_scheme": "light", "reduced_motion": "reduce"}
    context = browser.new_context(**{**usual, "timezone_id": "UTC", "locale": "en-GB", **options})
    context.set_default_timeout(TIMEOUT_MS)
    context.clock.set_fixed_time(_NOW)
    for pattern in ("**/health", "**/v1/runs*", "**/v1/conversations*", "**/v1/conversations/*", "**/v1/chat"):
        context.route(pattern, _tidied)
    try:
        yield context
    finally:
        context.unroute_all(behavior="ignoreErrors")
        context.close()


def _opened(context: BrowserContext, url: str) -> Page:
    """With all that it asks the gateway for at first."""
    page = context.new_page()
    page.goto(url)
    expect(page.locator("#about")).not_to_be_empty()
    expect(page.locator("#about-model")).not_to_have_text("default")
    return page


def _tidied(route: Route) -> None:
    reply = route.fetch()
    route.fulfill(response=reply, body=_same_everywhere(reply.text()))


def _same_everywhere(text: str) -> str:
    """Entries come with the newest first: each is some minutes older than the one before."""
    ages = {"created": count(), "updated": count()}
    firsts, spent = count(), count()

    def told(found: re.Match[str]) -> str:
        time = _NOW - timedelta(minutes=7 * next(ages[found[1]]))
        return f'"{found[1]}":"{time:%Y-%m-%dT%H:%M:%SZ}"'

    text = re.sub(r'"(created|updated)":"[^"]*"', told, text)
    text = re.sub(r'"firstEventMs":\d+', lambda _: f'"firstEventMs":{380 + next(firsts) * 97 % 240}', text)
    text = re.sub(r'"durationMs":\d+', lambda _: f'"durationMs":{_TOOK[next(spent) % len(_TOOK)]}', text)
    text = re.sub(r'"workspace":"[^"]*"', '"workspace":"/home/dev/bookshelf"', text)
    return re.sub(r" standin: play file=[^\"\s]*", "", text)


if __name__ == "__main__":
    main()
