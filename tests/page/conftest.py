"""A browser and gateways, one of each for a worker; a page of its own for each test, which must have done no harm."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.gateways import RunningGateway, running_gateway
from tests.page.browsers import PROGRAMS, TIMEOUT_MS, Watch, browser_program, running_browser
from tests.page.player import install_player
from tests.page.scripts import Script

NEEDS_ALL = os.environ.get("TEST_PAGE") == "all"

Contexts = Callable[..., BrowserContext]

PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}
both_sizes = pytest.mark.parametrize("size", ["desktop", "phone"])
"""Of the window: for tests that use a page."""


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser is slow: a quick run has the tests that are marked `smoke`, in a wide window."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            case = getattr(item, "callspec", None)
            is_phone = case is not None and "phone" in case.params.values()
            if is_phone or not item.get_closest_marker("smoke"):
                item.add_marker("slow")


def skip_or_fail(reason: str) -> None:
    """What is missing on somebody's machine must not be missing in CI."""
    if NEEDS_ALL:
        pytest.fail(reason)
    pytest.skip(reason)


# --- gateways -------------------------------------------------------------------------------------------


def player_settings(home: Path) -> dict[str, str]:
    """The stand-in of such a gateway can play scripts, which are in the form of the CLI."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    return {"agent_program": str(install_player(home / "bin")), "source": "cli"}


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("gateway")
    with running_gateway(home, settings=player_settings(home)) as running:
        yield running


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Without an agent: the built-in recordings, at once."""
    with running_gateway(tmp_path_factory.mktemp("demo"), has_agent=False, settings={"replay_speed": "0"}) as running:
        yield running


@pytest.fixture(scope="package")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """With read-only links."""
    settings = {"public_links": "true", "source": "cli"}
    with running_gateway(tmp_path_factory.mktemp("sharing"), settings=settings) as running:
        yield running


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path, f"script-{uuid4().hex[:8]}")


# --- the browser ----------------------------------------------------------------------------------------


@pytest.fixture(scope="package")  # and no longer: while it is open, nothing else can run a loop in this thread
def browser() -> Iterator[Browser]:
    program = browser_program()
    if program is None:
        skip_or_fail(f"no browser: none of {', '.join(PROGRAMS)} is on PATH")
        return
    with running_browser(program) as running:
        yield running


@pytest.fixture
def watch() -> list[Watch]:
    return []


@pytest.fixture
def contexts(browser: Browser, watch: list[Watch]) -> Iterator[Contexts]:
    """Makes windows, like those of several people, with options of `Browser.new_context`; all are watched."""
    made: list[BrowserContext] = []

    def context(**options: Any) -> BrowserContext:
        options.setdefault("service_workers", "block")  # what it fetches cannot be routed
        made.append(browser.new_context(**options))
        made[-1].set_default_timeout(TIMEOUT_MS)
        watch.append(Watch(made[-1]))
        watch[-1].allow("blocked by Playwright")
        # A test's own gateway may be gone when the page looks at what has changed.
        watch[-1].allow(r"net::ERR_CONNECTION_\w+ \(.*/changes\)")
        return made[-1]

    yield context
    for one in made:
        one.close()
    assert [found for one in watch for found in one.found] == []


@pytest.fixture
def size() -> str:
    return "desktop"


@pytest.fixture
def window(size: str) -> dict[str, Any]:
    return PHONE if size == "phone" else {}


@pytest.fixture
def page(contexts: Contexts, gateway: RunningGateway, window: dict[str, Any]) -> Page:
    return opened(contexts(**window), gateway.url)


@pytest.fixture
def demo_page(contexts: Contexts, demo: RunningGateway, window: dict[str, Any]) -> Page:
    return opened(contexts(**window), demo.url)


def opened(context: BrowserContext, url: str) -> Page:
    page = context.new_page()
    page.goto(url)
    return page
