"""What every test here relies on: whatever a page does that it must not is seen."""

from playwright.sync_api import Browser

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import opened


def _seen(watch: Watch, word: str) -> bool:
    return any(word in one for one in watch.found)


def test_errors_violations_and_requests_to_other_machines_are_seen(browser: Browser, demo: RunningGateway) -> None:
    context = browser.new_context()
    watch = Watch(context)
    try:
        page = opened(context, demo.url)
        assert watch.found == []
        page.evaluate("console.error('a line in the log')")
        page.evaluate("setTimeout(() => { throw new Error('nobody catches it'); })")
        page.evaluate("document.body.append(Object.assign(new Image(), { src: 'https://elsewhere.invalid/x.png' }))")
        context.route("**/*", lambda route: route.abort())  # it is asked for, but nothing leaves
        page.goto("about:blank")
        page.evaluate("fetch('http://elsewhere.invalid/').catch(() => {})")
        for word in ("a line in the log", "nobody catches it", "policy: img-src", "off the loopback"):
            assert _seen(watch, word), (word, watch.found)
        watch.allow("a line")
        assert not _seen(watch, "a line in the log")
    finally:
        context.close()
