"""Connections break and gateways are killed: the page comes back by itself, and shows everything once."""

import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.cli.processes import TIMEOUT
from tests.gateways import RunningGateway, running_gateway
from tests.page.browsers import Watch
from tests.page.conftest import Contexts, opened, player_settings
from tests.page.relay import relay
from tests.page.scripts import Script
from tests.page.using import ask, ask_and_wait, expect_state, expect_types, of_type
from tests.server.conftest import standin
from tests.server.test_leaks import ended_agents

_LOST = "net::ERR_"  # the browser's own lines about what could not be reached


@pytest.mark.smoke
def test_after_a_broken_connection_nothing_is_missing_and_nothing_twice(
    gateway: RunningGateway, contexts: Contexts, watch: list[Watch], script: Script
) -> None:
    script.say("One.", " Two.").shell("true", "ran\n").say("Three,").gate("1").say(" four,").shell("false", "ran\n")
    script.say("```python\nx = ").gate("2").say("1\n```\n", "The end.")
    with relay(gateway.url) as between:
        page = opened(contexts(), between.url)
        watch[0].allow(_LOST)
        ask(page, script.prompt())
        expect(of_type(page, "text").last).to_have_text("Three,")
        between.is_down = True
        assert between.cut()
        expect_state(page, "reconnecting")
        expect(page.get_by_role("status")).to_contain_text("Reconnecting")
        script.open("1")  # while nobody hears it
        between.is_down = False
        expect(of_type(page, "code_block").locator("[data-part=code]")).to_have_text("x = ")
        expect_state(page, "running")
        assert between.cut()  # in the middle of a document, and with the way free
        script.open("2")
        expect_state(page, "completed")
    types = ["text", "terminal_command", "text", "terminal_command", "code_block", "text"]
    expect_types(page, types)
    assert [one.inner_text().strip() for one in of_type(page, "text").all()] == [
        "One. Two.",
        "Three, four,",
        "The end.",
    ]
    expect(of_type(page, "code_block").locator("[data-part=code]")).to_have_text("x = 1")


def test_after_a_kill_the_page_goes_on_with_the_next_gateway(
    tmp_path: Path, contexts: Contexts, watch: list[Watch], script: Script
) -> None:
    with ended_agents(tmp_path) as home:
        settings = player_settings(home)
        with running_gateway(home, settings=settings) as killed:
            page = opened(contexts(), killed.url)
            watch[0].allow(_LOST)
            ask(page, script.say("Said before the kill.").shell("true", "ran\n").say("Half").gate("never").prompt())
            expect(of_type(page, "text").last).to_have_text("Half")
            killed.process.send_signal(signal.SIGKILL)
            killed.process.wait(TIMEOUT)
            expect_state(page, "reconnecting")
        with running_gateway(home, "--port", str(urlsplit(killed.url).port), settings=settings) as again:
            assert again.url == killed.url
            expect_state(page, "error")
            expect_types(page, ["text", "terminal_command", "text", "error"])
            assert [one.inner_text().strip() for one in of_type(page, "text").all()] == [
                "Said before the kill.",
                "Half",
            ]
            ask_and_wait(page, standin("say", "Here again."))
            expect(of_type(page, "text").last).to_contain_text("Here again.")


def test_a_gateway_that_is_away_is_reported_and_tried_again(
    gateway: RunningGateway, contexts: Contexts, watch: list[Watch]
) -> None:
    with relay(gateway.url) as between:
        page = opened(contexts(), between.url)
        watch[0].allow(_LOST)
        ask_and_wait(page, "Are you there?")
        between.is_down = True
        between.cut()
        ask(page, "And now?")
        expect(page.get_by_role("alert")).to_contain_text("is not responding")
        between.is_down = False
        page.get_by_role("button", name="Send").click()
        expect_state(page, "completed")
        expect(page.get_by_role("alert")).to_be_hidden()
