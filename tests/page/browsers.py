"""A browser of this machine, and what a page in it did that it must not, out."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Request, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_MS = 60_000  # for a red build only: a loaded machine must not come near it
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

expect.set_options(timeout=TIMEOUT_MS)


def browser_program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def running_browser(program: str) -> Iterator[Browser]:
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Of all pages of a context: errors, requests to other machines, and what the policy has forbidden."""

    def __init__(self, context: BrowserContext) -> None:
        self.requests: list[str] = []
        self._found: list[str] = []
        self._allowed: list[str] = []
        context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (event) =>"
            " console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"
        )
        context.on("console", self._logged)
        context.on("weberror", lambda error: self._found.append(f"not caught: {error.error}"))
        context.on("request", self._requested)

    def allow(self, pattern: str) -> None:
        """An error that a test provokes."""
        self._allowed.append(pattern)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._found.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _requested(self, request: Request) -> None:
        self.requests.append(request.url)
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob", "file") and address.hostname not in _LOOPBACK:
            self._found.append(f"off the loopback: {request.url}")

    @property
    def found(self) -> list[str]:
        return [one for one in self._found if not any(re.search(pattern, one) for pattern in self._allowed)]
