"""The dashboard: the newest runs in a table, and their tokens and durations drawn."""

from pathlib import Path

from playwright.sync_api import expect

from tests.gateways import running_gateway
from tests.page.conftest import Contexts, opened, player_settings
from tests.page.scripts import Script
from tests.page.using import answers, ask, ask_and_wait, expect_state, of_type


def test_runs_are_listed_drawn_and_lead_to_their_answers(tmp_path: Path, contexts: Contexts) -> None:
    home = tmp_path / "home"
    with running_gateway(home, settings=player_settings(home)) as gateway:
        page = opened(contexts(), f"{gateway.url}/#/runs")
        expect(page.get_by_text("No runs yet")).to_be_visible()
        page.get_by_role("link", name="New conversation").click()
        ask_and_wait(page, Script(tmp_path, "first").shell("ls", "a\n").read("a", "b").prompt("The first run."))
        page.get_by_role("link", name="New conversation").click()
        ask(page, "The second run. standin: fail-quota")
        expect_state(page, "error")
        held = Script(tmp_path, "held").say("Half").gate("1").say(" and whole.")
        page.get_by_role("link", name="New conversation").click()
        ask(page, held.prompt("The third run."))
        expect(of_type(page, "text")).to_have_text("Half")

        page.get_by_role("link", name="Runs").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
        rows = page.get_by_role("table").locator("tbody").get_by_role("row")
        expect(rows).to_have_count(3)
        assert [row.get_by_role("rowheader").inner_text()[:10] for row in rows.all()] == [
            "The third ",
            "The second",
            "The first ",
        ]
        expect(rows.nth(0).locator("[data-run]")).to_have_attribute("data-run", "running")
        expect(rows.nth(1).locator("[data-run]")).to_have_attribute("data-run", "error")
        expect(rows.nth(2).locator("[data-run]")).to_have_attribute("data-run", "completed")
        expect(rows.nth(2)).to_contain_text("1,545")
        expect(rows.nth(2).get_by_role("cell").last).to_have_text("2")
        for name in ("Tokens", "Duration"):
            plot = page.get_by_role("img", name=name)
            expect(plot).to_be_visible()
            expect(plot.locator("g.bars > g")).to_have_count(2)
        held.open("1")
        expect(rows.nth(0).locator("[data-run]")).to_have_attribute("data-run", "completed")  # by itself
        rows.nth(2).get_by_role("link").click()
        expect(answers(page)).to_have_count(1)
        expect(of_type(page, "terminal_command")).to_contain_text("ls")
