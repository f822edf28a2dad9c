"""The page on a phone: log in by a link, install it, be notified, and allow a command."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import PHONE, Contexts, opened
from tests.page.relay import relay
from tests.page.test_permissions import counter, times
from tests.page.using import ask, ask_and_wait, expect_state, of_type, prompt_box
from tests.server.conftest import eventually
from tests.server.test_logins import Shared, shared_gateway


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_gateway(tmp_path_factory.mktemp("shared")) as running:
        yield running


def test_a_login_link_is_used_once_and_leaves_nothing_in_the_address(
    contexts: Contexts, shared: Shared, watch: list[Watch]
) -> None:
    context, code = contexts(**PHONE), shared.new_code()
    page = opened(context, f"{shared.url}/#/login/{code}")
    ask_and_wait(page, "From my phone")
    assert code not in page.evaluate("location.href")
    assert not [url for url in watch[0].requests if code in url]
    page.reload()
    expect_state(page, "completed")
    assert context.cookies() == []
    # Somebody else with the same link:
    other = contexts(**PHONE)
    watch[1].allow("status of 40[13]")
    page = opened(other, f"{shared.url}/#/login/{code}")
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_contain_text("expired or was already used")


def test_a_login_link_also_works_in_a_page_that_is_open(contexts: Contexts, shared: Shared, watch: list[Watch]) -> None:
    page = opened(contexts(), shared.url)
    watch[0].allow("status of 401")
    expect(page.get_by_role("dialog", name="API key")).to_be_visible()
    code = shared.new_code()
    with page.expect_event("load"):  # only the fragment changes, so the page reloads by itself
        page.goto(f"{shared.url}/#/login/{code}")
    ask_and_wait(page, "Hello")
    assert code not in page.evaluate("location.href")


def test_logging_out_on_the_page_ends_the_key(contexts: Contexts, shared: Shared, watch: list[Watch]) -> None:
    page = opened(contexts(), f"{shared.url}/#/login/{shared.new_code()}")
    ask_and_wait(page, "Hello")
    key = page.evaluate("localStorage.getItem('cursor-gateway-key')")
    watch[0].allow("status of 401")
    page.get_by_role("button", name="Help and keyboard shortcuts").click()
    page.get_by_role("button", name="Forget the API key").click()
    expect(page.get_by_role("dialog", name="API key")).to_be_visible()
    with shared.client(key) as client:
        assert client.get("/v1/models").status_code == 401


def test_it_can_be_installed(demo: RunningGateway) -> None:
    shell = httpx2.get(demo.url)
    assert "manifest-src 'self'" in shell.headers["content-security-policy"]
    found = re.search(r'<link rel="manifest" href="([^"]+)">', shell.text)
    assert found
    manifest = httpx2.get(demo.url + found[1])
    assert manifest.headers["content-type"] == "application/manifest+json"
    described = manifest.json()
    assert (described["display"], described["start_url"], described["scope"]) == ("standalone", "/", "/")
    for icon in described["icons"]:
        data = httpx2.get(demo.url + icon["src"])
        assert data.headers["content-type"] == icon["type"]
        if icon["type"] == "image/png":
            width = int.from_bytes(data.content[16:20])
            assert icon["sizes"] == f"{width}x{width}"


def test_without_a_network_it_opens_and_nothing_but_its_own_files_was_stored(
    contexts: Contexts, demo: RunningGateway, watch: list[Watch]
) -> None:
    context = contexts(service_workers="allow")
    with relay(demo.url) as between:
        page = opened(context, between.url)
        page.evaluate("navigator.serviceWorker.ready.then(() => null)")
        page.reload()  # now by the service worker
        ask_and_wait(page, "Hello")
        stored = page.evaluate(
            "caches.open('page-files').then((files) => files.keys())"
            ".then((all) => all.map(({ url }) => new URL(url).pathname))"
        )
        assert "/" in stored
        assert [path for path in stored if path != "/" and not path.startswith("/page/")] == []
        assert page.evaluate("caches.keys()") == ["page-files"]
        watch[0].allow("Failed to load resource|net::")
        between.is_down = True
        between.cut()
        page.reload()
        expect(prompt_box(page)).to_be_visible()
        between.is_down = False
        page.reload()
        ask_and_wait(page, "Hello again")


def test_a_notification_leads_to_its_conversation(contexts: Contexts, gateway: RunningGateway) -> None:
    context = contexts(service_workers="allow", permissions=["notifications"])
    page = opened(context, gateway.url)
    page.evaluate("navigator.serviceWorker.ready.then(() => null)")
    page.get_by_role("button", name="Notify me when the agent needs me").click()
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
    prompt, _ = counter(gateway.workspace)
    ask(page, prompt)
    expect_state(page, "waiting")
    shown = "navigator.serviceWorker.ready.then((it) => it.getNotifications())"
    shown += ".then((all) => all.map(({ title, data }) => [title, data]))"
    eventually(lambda: page.evaluate(shown) != [])
    ((title, path),) = page.evaluate(shown)
    assert title == "The agent is waiting for you"
    assert page.url.endswith(path)


def test_a_command_is_allowed_on_a_phone_that_has_logged_in(contexts: Contexts, shared: Shared) -> None:
    workspace: Path = shared.gateway.workspace
    page = opened(contexts(**PHONE), f"{shared.url}/#/login/{shared.new_code()}")
    prompt, ran = counter(workspace)
    ask(page, prompt)
    expect_state(page, "waiting")
    allow = page.get_by_role("button", name="Allow once").first
    expect(allow).to_be_in_viewport(ratio=1)
    box = allow.bounding_box()
    assert box is not None
    assert box["height"] >= 24  # a finger's target (WCAG 2.2, 2.5.8)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    allow.tap()
    expect_state(page, "completed")
    assert times(ran) == 1
    expect(of_type(page, "terminal_command").last).to_contain_text("exit 0")
