"""The dashboard: the newest runs in a table, and their tokens and durations drawn."""

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.cluster.conftest import cluster
from tests.gateways import running_gateway
from tests.page.browsers import Watch
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


def test_the_cost_of_runs_and_the_budget_are_shown(tmp_path: Path, contexts: Contexts) -> None:
    home = tmp_path / "home"
    given = {"prices": '{"*": {"input": 2, "output": 10}}', "budgets": '{"*": {"usd_per_month": 20}}'}
    with running_gateway(home, settings={**player_settings(home), **given}) as gateway:
        page = opened(contexts(), gateway.url)
        ask_and_wait(page, Script(tmp_path, "priced").say("Hi.").prompt("A run."))
        expect(answers(page).locator(".facts")).to_have_attribute("title", re.compile(r"in, .* out, \$0\.00\d\d;"))
        page.get_by_role("link", name="Runs").click()
        row = page.get_by_role("table").locator("tbody").get_by_role("row")
        expect(row.locator("td small")).to_have_text(re.compile(r"^\$0\.00\d\d$"))
        cost = row.locator("td small").inner_text()
        used = re.compile(
            rf"Today 1\.\d+K tokens, {re.escape(cost)}; this month 1\.\d+K tokens, .* of \$20\.00 \(UTC\)\."
        )
        expect(page.locator("#used")).to_have_text(used)


def test_what_waits_is_listed_and_can_be_cancelled(tmp_path: Path, contexts: Contexts, watch: list[Watch]) -> None:
    home = tmp_path / "home"
    with running_gateway(home, settings={**player_settings(home), "max_runs": "1"}) as gateway:
        page = opened(contexts(), gateway.url)
        held = Script(tmp_path, "held").say("Half").gate("1").say(" and whole.")
        ask(page, held.prompt("The first run."))
        expect(of_type(page, "text")).to_have_text("Half")
        for name in ("The second run.", "The third run."):
            page.get_by_role("link", name="New conversation").click()
            ask(page, Script(tmp_path, name[4:7]).say("Done.").prompt(name))
            expect(page.get_by_text("Waiting for a free slot…")).to_be_visible()
        watch[0].allow("status of 404")  # the conversation does not exist yet
        page.reload()
        expect(page.get_by_text("Waiting for a free slot…")).to_be_visible()

        page.get_by_role("link", name="Runs").click()
        rows = page.get_by_role("region", name="Queue").locator("tbody").get_by_role("row")
        expect(rows).to_have_count(2)
        expect(rows.nth(0)).to_contain_text("The second run.")
        expect(rows.nth(0)).to_contain_text("No. 1")
        rows.nth(0).get_by_role("link", name="The second run.").click()
        expect(page.get_by_text("Waiting for a free slot…")).to_be_visible()
        page.get_by_role("link", name="Runs").click()
        expect(page.get_by_role("heading", name="Cluster")).to_be_hidden()
        rows.nth(1).get_by_role("button", name="Cancel").click()
        expect(rows).to_have_count(1)
        held.open("1")
        expect(page.get_by_role("region", name="Queue")).to_be_hidden()
        done = page.get_by_role("region", name="Newest runs").locator("tbody").get_by_role("row")
        expect(done).to_have_count(2)
        expect(done.nth(0).locator("[data-run]")).to_have_attribute("data-run", "completed")


def test_the_processes_of_a_cluster_are_listed_and_drained(tmp_path: Path, database: str, contexts: Contexts) -> None:
    with cluster(tmp_path, database, fronts=1, runners=2) as running:
        page = opened(contexts(), f"{running.fronts[0].url}/#/runs")
        rows = page.get_by_role("region", name="Cluster").locator("tbody").get_by_role("row")
        expect(rows).to_have_count(3)
        runners = rows.filter(has_text="0 of 8")
        expect(runners).to_have_count(2)
        runners.first.get_by_role("button", name="Drain").click()
        draining = rows.filter(has_text="Draining")
        expect(draining).to_have_count(1)
        listed = running.clients[0].get("/v1/queue").json()["runners"]
        (drained,) = [one["id"] for one in listed if one["draining"]]
        expect(draining.get_by_role("rowheader")).to_have_attribute("title", drained)
        draining.get_by_role("button", name="Undrain").click()
        expect(draining).to_have_count(0)
        assert not any(one["draining"] for one in running.clients[0].get("/v1/queue").json()["runners"])
