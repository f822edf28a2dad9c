"""Without an agent, recordings answer, and nobody can mistake them for one."""

from playwright.sync_api import Page, expect

from tests.page.conftest import both_sizes
from tests.page.using import answers, documents, expect_state, of_type


def test_the_demo_says_that_it_is_one(demo_page: Page, page: Page) -> None:
    badge = demo_page.locator(".source").filter(visible=True)
    expect(badge).to_have_text("demo")
    expect(demo_page.get_by_text("This is a demo")).to_be_visible()
    expect(page.locator(".source").filter(visible=True)).to_have_count(0)
    expect(page.get_by_text("This is a demo")).to_be_hidden()


def test_it_begins_with_failing_tests_and_ticks_off_a_plan_while_it_works(demo_page: Page) -> None:
    expect(demo_page.locator("#suggestions button").first).to_contain_text("Fix the failing tests")
    demo_page.get_by_role("button", name="Implement JWT authentication").click()
    expect_state(demo_page, "completed")
    types = documents(demo_page).evaluate_all("all => all.map((one) => one.dataset.type)")
    edits = [place for place, type in enumerate(types) if type == "file_edit"]
    assert any(edits[0] < place < edits[-1] for place, type in enumerate(types) if type == "todo_update")


@both_sizes
def test_a_plan_is_accepted(demo_page: Page) -> None:
    demo_page.get_by_role("button", name="Plan a search for the bookshelf").click()
    expect_state(demo_page, "completed")
    of_type(demo_page, "plan").get_by_role("button", name="Accept").click()
    expect(answers(demo_page)).to_have_count(2)
    expect_state(demo_page, "completed")
    expect(answers(demo_page).last).to_contain_text("The plan is done")
    expect(of_type(answers(demo_page).last, "file_edit")).to_have_count(3)
