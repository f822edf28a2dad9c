"""The tasks of docs/first-tasks.md that are done on the page, in; how many clicks each took, out.

The person types into what has the focus and clicks on what is named. What they ask is answered by the stand-in agent:
`answered` adds, on the way to the gateway, what makes it do so.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Locator, Page, Route, expect

from tests.gateways import RunningGateway
from tests.page.using import answers, expect_state, menu, of_type, prompt_box

Picture = Callable[[str], None]

FOLDER = "bookshelf"
FILE = "greeting.py"
BEFORE, AFTER = 'print("Hello")\n', 'print("Good morning")\n'
_EDIT = [
    {"native": "edit", "args": {"path": FILE, "streamContent": AFTER}},
    {"say": "The program now says good morning."},
]
_PROMPTS = {
    "Run the checks": 'standin: shell command="python3 check.py"',
    "Tidy up my notes": "standin: question",
    "Make the greeting friendlier": f"standin: program\n---\n{json.dumps(_EDIT)}",
}


class Person:
    def __init__(self, page: Page, picture: Picture = lambda _: None) -> None:
        self.page, self.picture = page, picture
        self.clicks = 0

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name))

    def type(self, prompt: str) -> None:
        """The prompt has the focus, without a click."""
        expect(prompt_box(self.page)).to_be_focused()
        self.page.keyboard.type(prompt)

    def send(self) -> None:
        self.page.keyboard.press("Enter")
        expect(answers(self.page)).not_to_have_count(0)


def prepare(gateway: RunningGateway) -> None:
    folder = gateway.workspace / FOLDER
    folder.mkdir()
    (folder / "check.py").write_text('print("3 checks passed")\n')
    (folder / FILE).write_text(BEFORE)


def answered(route: Route) -> None:
    """For `POST /v1/chat`."""
    body = json.loads(route.request.post_data or "{}")
    route.continue_(post_data=json.dumps({**body, "message": f"{body['message']} {_PROMPTS[body['message']]}"}))


def do_tasks(person: Person) -> dict[str, int]:
    """In the order of a first hour, by the headings of that page."""
    clicks: dict[str, int] = {}
    for task in _TASKS:
        person.clicks = 0
        task(person)
        clicks[task.__name__.replace("_", "-")] = person.clicks
    return clicks


def choose_a_folder(person: Person) -> None:
    person.button("Folder:")
    option = person.page.get_by_role("option", name=FOLDER)
    expect(option).to_be_visible()
    person.picture("choose-a-folder")
    person.click(option)


def ask(person: Person) -> None:
    person.type("Run the checks")
    person.picture("ask")
    person.send()


def allow_a_command(person: Person) -> None:
    expect_state(person.page, "waiting")
    person.picture("allow-a-command")
    person.button("Allow once")
    expect_state(person.page, "completed")
    expect(of_type(person.page, "terminal_command")).to_contain_text("3 checks passed")


def answer_a_question(person: Person) -> None:
    _begin(person, "Tidy up my notes")
    expect_state(person.page, "waiting")
    question = of_type(person.page, "clarification")
    person.click(question.get_by_role("radio", name="notes.txt"))
    person.picture("answer-a-question")
    person.click(question.get_by_role("button", name="Answer"))
    expect_state(person.page, "completed")


def see_what_changed(person: Person) -> None:
    _begin(person, "Make the greeting friendlier")
    expect_state(person.page, "completed")
    person.click(person.page.get_by_role("button", name=re.compile("^Changes: ")))
    panel = person.page.get_by_role("complementary", name="Changes")
    expect(panel.locator("ins").last).to_contain_text("Good morning")
    person.picture("see-what-changed")


def revert_one_file(person: Person) -> None:
    """From the open panel."""
    person.click(person.page.get_by_role("button", name=re.compile("^Undo file ")))
    dialog = person.page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    person.picture("revert-one-file")
    person.click(dialog.get_by_role("button", name="Restore"))
    expect(person.page.locator("#toast")).to_contain_text("Restored")


def find_yesterdays_conversation(person: Person) -> None:
    """The next day."""
    _go_to_tomorrow(person)
    person.page.keyboard.press("Control+k")
    person.page.keyboard.type("checks")
    found = person.page.get_by_role("option")
    expect(found).to_have_count(1)
    person.picture("find-yesterdays-conversation")
    person.click(found.first)
    expect(answers(person.page)).to_have_count(1)


def continue_it_in_the_terminal(person: Person) -> None:
    """The command that continues the conversation there."""
    button = menu(person.page).get_by_role("button", name="Copy terminal command")
    person.clicks += 1
    expect(button).to_be_visible()
    person.picture("copy-command")
    person.click(button)


_TASKS = (
    choose_a_folder,
    ask,
    allow_a_command,
    answer_a_question,
    see_what_changed,
    revert_one_file,
    find_yesterdays_conversation,
    continue_it_in_the_terminal,
)


def _begin(person: Person, prompt: str) -> None:
    """A new conversation, which the counted clicks follow."""
    person.page.get_by_role("link", name="New conversation").click()
    person.type(prompt)
    person.send()


def _go_to_tomorrow(person: Person) -> None:
    person.page.clock.set_fixed_time(datetime.now(UTC) + timedelta(days=1))
    person.page.goto(person.page.url.split("#")[0])
    heading = person.page.get_by_role("navigation", name="Conversations").get_by_role("heading")
    expect(heading.first).to_have_text("Yesterday")
