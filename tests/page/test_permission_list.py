"""All permissions in one place, and a notification for those who want one."""

import pytest
from playwright.sync_api import Page, expect

from tests.gateways import RunningGateway
from tests.page.browsers import Watch
from tests.page.conftest import PHONE, Contexts, opened
from tests.page.test_accessibility import axe, violations  # noqa: F401 -- a fixture
from tests.page.test_held import holding  # noqa: F401 -- a fixture
from tests.page.test_permissions import counter, rejected, times
from tests.page.using import answers, ask, ask_and_wait, expect_state, of_type
from tests.server.conftest import eventually


def decided_page(contexts: Contexts, gateway: RunningGateway, button: str, **options: object) -> tuple[Page, str]:
    page = opened(contexts(**options), gateway.url)
    prompt, ran = counter(gateway.workspace)
    rejected(page, prompt)
    of_type(page, "terminal_command").first.get_by_role("button", name=button).click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    assert times(ran) == 1
    return page, prompt


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_a_permission_is_listed_and_revoked(contexts: Contexts, gateway: RunningGateway, size: str, axe: str) -> None:  # noqa: F811
    page, prompt = decided_page(
        contexts, gateway, "Always in this conversation", **(PHONE if size == "phone" else {}), reduced_motion="reduce"
    )
    conversation = page.url
    if size == "phone":
        page.get_by_role("button", name="Conversations").first.click()
    page.get_by_role("link", name="Permissions").click()
    command = prompt.split('"')[1]
    entry = page.get_by_role("list", name="Your decisions").get_by_role("listitem").filter(has_text=command)
    expect(entry).to_contain_text("Always in this conversation: Shell(python3)")
    assert violations(page, axe) == []
    expect(entry.get_by_role("button")).to_be_in_viewport(ratio=1)
    entry.get_by_role("button", name="Revoke").click()
    expect(entry).to_have_count(0)
    page.goto(conversation)
    expect(answers(page)).to_have_count(2)
    ask(page, prompt)
    expect(answers(page)).to_have_count(3)
    expect_state(page, "waiting")
    expect(of_type(answers(page).last, "terminal_command")).to_contain_text("needs permission")


_NEXT_LOOK_MS = 16_000  # the page looks at its list again
SPY = "window.notes = []; window.Notification = class { static permission = 'default'; "
SPY += "static async requestPermission() { window.asked = true; return (this.permission = 'granted'); } "
SPY += "constructor(title, { body }) { window.notes.push(`${title}: ${body}`); } };"


def test_you_are_notified_only_if_you_asked_for_it(contexts: Contexts, holding: RunningGateway) -> None:  # noqa: F811
    context = contexts()
    context.add_init_script(SPY)  # what a browser shows outside of its page cannot be read
    page, other = context.new_page(), opened(context, holding.url)
    page.clock.install()
    page.goto(holding.url)
    ask_and_wait(page, "Hello")
    assert page.evaluate("window.asked") is None
    bell = page.get_by_role("button", name="Notify me when the agent needs me")
    expect(bell).to_have_attribute("aria-pressed", "false")
    bell.click()
    expect(bell).to_have_attribute("aria-pressed", "true")
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
    prompt, _ = counter(holding.workspace)
    ask(other, prompt)
    expect_state(other, "waiting")
    page.clock.fast_forward(_NEXT_LOOK_MS)
    eventually(lambda: page.evaluate("window.notes.length") == 1)
    (note,) = page.evaluate("window.notes")
    assert note.startswith("The agent is waiting for you: ")
    of_type(other, "clarification").get_by_role("button", name="Deny").click()
    expect_state(other, "completed")
    page.clock.fast_forward(_NEXT_LOOK_MS)
    eventually(lambda: page.evaluate("window.notes.length") == 2)
    assert page.evaluate("window.notes")[1].startswith("The agent has finished: ")


BEHIND = "document.hasFocus = () => false"  # another window has it
HIDDEN = "Object.defineProperty(document, 'hidden', { get: () => true })"


@pytest.mark.parametrize("how", [BEHIND, HIDDEN])
def test_you_are_notified_after_sleep(
    contexts: Contexts,
    holding: RunningGateway,  # noqa: F811
    watch: list[Watch],
    how: str,
) -> None:
    context = contexts()
    context.add_init_script(SPY)
    page, other = context.new_page(), opened(contexts(), holding.url)
    page.clock.install()
    page.goto(holding.url)
    ask_and_wait(page, "Hello")
    page.get_by_role("button", name="Notify me when the agent needs me").click()
    page.evaluate(how)
    watch[0].allow("Failed to load resource|net::")
    context.set_offline(True)
    prompt, _ = counter(holding.workspace)
    ask(other, prompt)
    expect_state(other, "waiting")
    page.clock.fast_forward(3_600_000)
    assert page.evaluate("window.notes") == []
    context.set_offline(False)
    page.clock.fast_forward(_NEXT_LOOK_MS)
    eventually(lambda: page.evaluate("window.notes.length") == 1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_permission_form_and_the_pickers_are_accessible(
    contexts: Contexts,
    holding: RunningGateway,  # noqa: F811
    axe: str,  # noqa: F811
    scheme: str,
    size: str,
) -> None:
    options = {**(PHONE if size == "phone" else {}), "color_scheme": scheme, "reduced_motion": "reduce"}
    page = opened(contexts(**options), holding.url)
    for picker in ("Mode:", "Model:", "Folder:"):
        page.get_by_role("button", name=picker).click()
        expect(page.get_by_role("listbox").first).to_be_visible()
        assert violations(page, axe) == []
        page.keyboard.press("Escape")
    prompt, _ = counter(holding.workspace)
    ask(page, prompt)
    expect_state(page, "waiting")
    assert violations(page, axe) == []
    of_type(page, "clarification").get_by_role("button", name="Deny").click()
    expect_state(page, "completed")
    expect(of_type(page, "clarification")).to_contain_text("denied")
    assert violations(page, axe) == []
