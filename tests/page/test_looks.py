"""Light and dark, wide and narrow; the weight of the page, and what it shows before the gateway has answered."""

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

import cursor_gateway
from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import PHONE, Contexts, both_sizes, opened
from tests.page.using import answer_menu, answers, ask, ask_and_wait, conversations, expect_state, menu, prompt_box

_SOURCE = Path(cursor_gateway.__file__).parent
_MOST_BYTES = 194_000


def _lightness(page: Page) -> float:
    """Of the page's ground: 0 is black, 255 is white."""
    painted: str = page.evaluate(
        """() => {
            const canvas = document.createElement('canvas').getContext('2d');
            canvas.fillStyle = getComputedStyle(document.body).backgroundColor;
            canvas.fillRect(0, 0, 1, 1);
            return canvas.getImageData(0, 0, 1, 1).data.slice(0, 3).join(' ');
        }"""
    )
    return sum(map(int, painted.split())) / 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_are_those_of_the_system_until_others_are_chosen(
    contexts: Contexts, demo: RunningGateway, scheme: str
) -> None:
    page = opened(contexts(color_scheme=scheme), demo.url)
    is_dark = scheme == "dark"
    assert (_lightness(page) < 64) == is_dark
    page.get_by_role("button", name="Switch between light and dark").click()
    assert (_lightness(page) < 64) != is_dark
    page.reload()
    assert (_lightness(page) < 64) != is_dark
    page.get_by_role("button", name="Switch between light and dark").click()
    assert (_lightness(page) < 64) == is_dark


def _overflow(page: Page) -> list[str]:
    """What reaches out of the window to the side and cannot be scrolled within something else."""
    found: list[str] = page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            return [...document.querySelectorAll('body *')]
                .filter((one) => one.getBoundingClientRect().right > width + 1)
                .map((one) => `${one.tagName}.${one.className} ${one.getBoundingClientRect().right}`);
        }"""
    )
    return found


def test_nothing_overflows_a_phone(contexts: Contexts, demo: RunningGateway) -> None:
    page = opened(contexts(**PHONE), demo.url)
    expect(page.get_by_role("button", name="Implement JWT authentication")).to_be_visible()
    assert _overflow(page) == []
    ask_and_wait(page, "Implement JWT authentication")
    assert _overflow(page) == []
    for folded in page.locator(".documents details > summary").all():
        folded.click()
    assert _overflow(page) == []
    page.get_by_role("button", name="Conversations").click()
    expect(conversations(page).first).to_be_visible()
    assert _overflow(page) == []
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("table")).to_be_visible()
    assert _overflow(page) == []


def test_a_whole_conversation_fits_on_a_phone(contexts: Contexts, demo: RunningGateway) -> None:
    page = opened(contexts(**PHONE), demo.url)
    page.get_by_role("button", name="Store the books in a database").tap()
    expect_state(page, "completed")
    question = page.get_by_role("article", name="Question")
    for group in question.get_by_role("group").all():
        group.get_by_role("radio").or_(group.get_by_role("checkbox")).first.check()
    question.get_by_role("button", name="Answer").tap()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    expect(prompt_box(page)).to_be_in_viewport()


@pytest.mark.parametrize("prompt", ["Hello", "standin: fail-quota"])  # the buttons stand on either side of a phone
@both_sizes
def test_menus_are_within_the_window(page: Page, size: str, prompt: str) -> None:
    if size == "desktop":
        page.set_viewport_size({"width": 1024, "height": 768})
    ask(page, prompt)
    expect_state(page, "completed" if prompt == "Hello" else "error")
    for button in answer_menu(answers(page).last).get_by_role("button").all():
        expect(button).to_be_in_viewport(ratio=1)
    page.keyboard.press("Escape")
    for button in menu(page).get_by_role("button").all():
        expect(button).to_be_in_viewport(ratio=1)


def test_the_page_is_light() -> None:
    own = [file for file in (_SOURCE / "server" / "page").iterdir() if file.suffix in (".js", ".css")]
    own.append(_SOURCE / "render" / "html" / "style.css")
    sizes = {file.name: file.stat().st_size for file in own}
    assert sum(sizes.values()) < _MOST_BYTES, sizes


def _never(context: BrowserContext) -> list[Route]:
    """Holds back whatever the page asks the gateway for."""
    held: list[Route] = []
    for pattern in ("**/v1/**", "**/health"):
        context.route(pattern, lambda route: held.append(route))
    return held


def test_the_page_is_there_before_the_gateway_has_answered(
    contexts: Contexts, gateway: RunningGateway, watch: list[Watch]
) -> None:
    context = contexts()
    watch[0].allow("net::ERR_FAILED")
    held = _never(context)
    page = opened(context, gateway.url)
    expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
    expect(prompt_box(page)).to_be_editable()
    expect(page.get_by_role("link", name="Runs")).to_be_visible()
    expect(page.get_by_role("navigation", name="Conversations")).to_be_attached()
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint').length")
    assert painted == 1
    assert held
    for one in held:
        one.abort()


def test_without_the_gateway_the_page_says_so(contexts: Contexts, gateway: RunningGateway, watch: list[Watch]) -> None:
    context = contexts()
    watch[0].allow("net::ERR_")
    for pattern in ("**/v1/**", "**/health"):
        context.route(pattern, lambda route: route.abort())
    page = opened(context, gateway.url)
    expect(page.get_by_role("alert")).to_contain_text("is not responding")
    context.unroute_all()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("alert")).to_be_hidden()
