"""Whatever an answer holds, the page shows it as text, stays quick, and stays usable."""

import json
from statistics import median

import pytest
from playwright.sync_api import Page, expect

from tests.agent.natives import Ran, shell_result
from tests.gateways import RunningGateway
from tests.page.browsers import TIMEOUT_MS
from tests.page.conftest import Contexts, opened
from tests.page.scripts import Script
from tests.page.using import answers, ask, ask_and_wait, documents, expect_state, of_type, prompt_box

_HOSTILE = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    "<svg onload='window.hurt = 1'><a href='https://evil.example/'>x</a></svg>",
    "<iframe src='https://evil.example/'></iframe>",
    "<details open ontoggle='window.hurt = 1'>x</details>",
    "<style>body { display: none }</style>",
    "<form action='https://evil.example/'><button>Send</button></form>",
    "[a link](javascript:window.hurt=1)",
    "[another](JaVaScRiPt&#58;window.hurt=1)",
    "[data](data:text/html,<script>window.hurt=1</script>)",
    "![a picture](https://evil.example/pixel.png)",
    '<a href="javascript:window.hurt=1" onclick="window.hurt=1">x</a>',
    "</code></pre></article><script>window.hurt = 1</script>",
    "'\"><script>window.hurt = 1</script>",
    "<meta http-equiv=refresh content='0; url=https://evil.example/'>",
    "<base href='https://evil.example/'>",
    "<div id=message></div><input id=send name=prompt>",
]
_BIDI = "user\u202etxt.exe\u2066 \u200bnot.txt"
_FIRST, _MANY, _WINDOW = 100, 4_000, 900
_LONG_MS = 4 * TIMEOUT_MS
_SLOWER = (
    10  # times: more than the noise of frames that add few documents, less than growth with the page (18) would be
)


def hostile(script: Script) -> Script:
    """The same in every place that an answer has for text."""
    for text in _HOSTILE:
        script.say(f"{text}\n\n", f"- {text}\n\n", f"> `{text}`\n\n")
        script.say(f"```{text.replace(chr(10), ' ')}\n{text}\n```\n\n", f"```1:2:{text}\n{text}\n```\n\n")
    everything = "\n".join(_HOSTILE)
    script.read(everything, everything).edit(everything, everything, f"{everything}!")
    script.call("shell", {"command": everything}, shell_result(everything, Ran(1, everything, everything), everything))
    script.call(everything, {everything: everything}, {"success": {everything: everything}})
    script.plan(_HOSTILE[0], [(text, text) for text in _HOSTILE])
    script.todos(*((text, text, "COMPLETED") for text in _HOSTILE[:3]))
    return script.question(everything, *_HOSTILE)


def assert_unharmed(page: Page) -> None:
    assert page.evaluate("window.hurt") is None
    shown = answers(page).locator(".documents")  # the rest is the page's own
    assert shown.locator("script, iframe, img, style, base, meta, object, embed, link, svg").count() == 0
    harm = shown.evaluate_all(
        """all => all.flatMap((answer) => [...answer.querySelectorAll('*')])
            .flatMap((one) => [...one.attributes].map((attribute) => [attribute.name, attribute.value]))
            .filter(([name, value]) => name.startsWith('on')
                || (['href', 'src', 'action', 'formaction'].includes(name) && !/^(https?:|mailto:|#)/i.test(value)))"""
    )
    assert harm == []
    assert page.locator("#message").count() == 1
    assert page.locator("body").is_visible()


@pytest.mark.smoke
def test_hostile_text_stays_text(page: Page, script: Script) -> None:
    ask(page, hostile(script).prompt(" ".join(text for text in _HOSTILE if "\n" not in text)))
    expect_state(page, "completed")
    assert_unharmed(page)
    page.locator("article details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    expect(of_type(page, "tool_call").first).to_contain_text("<script>window.hurt = 1</script>")
    page.reload()
    expect(of_type(page, "clarification")).to_be_visible()
    assert_unharmed(page)
    page.get_by_role("searchbox").fill("hurt")
    expect(page.get_by_role("navigation", name="Conversations").get_by_role("link")).not_to_have_count(0)
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("table")).to_be_visible()
    assert page.evaluate("window.hurt") is None
    page.get_by_role("link", name="New conversation").click()
    expect(answers(page)).to_have_count(0)
    ask_and_wait(page, "Still there?")


def test_a_hostile_option_can_be_chosen(page: Page, script: Script) -> None:
    ask(page, script.question(_HOSTILE[0], *_HOSTILE[:4]).prompt())
    expect_state(page, "completed")
    of_type(page, "clarification").get_by_role("radio").nth(1).check()
    of_type(page, "clarification").get_by_role("button", name="Answer").click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    assert_unharmed(page)


def test_what_turns_the_direction_of_text_is_made_visible(page: Page, script: Script) -> None:
    script.say(f"Open {_BIDI} now. `{_BIDI}`").read(_BIDI, _BIDI)
    script.call("shell", {"command": f"rm {_BIDI}"}, shell_result(f"rm {_BIDI}", Ran(0, _BIDI, "")))
    ask_and_wait(page, script.prompt())
    text: str = answers(page).inner_text()
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") & set(text)
    labels = documents(page).evaluate_all("all => all.map((one) => one.getAttribute('aria-label')).join()")
    assert not set("\u202e\u2066\u200b") & set(labels)


@pytest.mark.parametrize("kind", ["text", "code", "output"])
def test_five_megabytes_can_be_read_and_left(page: Page, script: Script, kind: str) -> None:
    line = "All work and no play makes Jack a dull boy. <b>0123456789</b>\n"
    piece = line * 1000
    pieces = [piece] * (5_000_000 // len(piece) + 1)
    if kind == "text":
        paragraph = line.replace("\n", " ") * 9 + "\n\n"
        script.say(*[paragraph * 100] * (5_000_000 // len(paragraph * 100) + 1))
    elif kind == "code":
        script.say("```\n", *pieces, "```\n")
    else:
        script.call("shell", {"command": "yes"}, shell_result("yes", Ran(0, "".join(pieces), "")))
    ask(page, script.say("\n\nThe end of it.").prompt())
    expect(page.get_by_role("status")).to_have_text("Answer complete", timeout=_LONG_MS)
    end = of_type(page, "text").last.locator("p").last  # not the whole text: comparing that takes longer than all else
    expect(end).to_have_text("The end of it.")
    expect(end).to_be_in_viewport()
    prompt_box(page).fill("Still there?")
    page.get_by_role("button", name="Send").click()
    expect(answers(page)).to_have_count(2)
    expect_state(page, "completed")
    expect(documents(answers(page).last)).to_contain_text("Still there?")


# Every frame of the page with the documents that it added: its scripts and the layout that these make necessary.
_TIMED_FRAMES = """
    window.frames_ = [];
    const request = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (act) => request((time) => {
        const articles = document.getElementsByTagName('article');
        const before = articles.length;
        const start = performance.now();
        act(time);
        document.body.offsetHeight;
        const spent = performance.now() - start;
        if (articles.length > before) window.frames_.push([before, articles.length - before, spent]);
    });
"""


def test_the_last_of_four_thousand_documents_costs_no_more_than_the_first(
    contexts: Contexts, gateway: RunningGateway, script: Script
) -> None:
    """As a ratio within one run: of medians over frames, each frame's time shared by the documents it added."""
    context = contexts()
    context.add_init_script(_TIMED_FRAMES)
    page = opened(context, gateway.url)
    for number in range(_MANY // 2):
        script.read(f"file-{number}.txt", "one\n").say(f"That was file **{number}**.")
    ask(page, script.prompt())
    expect(documents(page)).to_have_count(_MANY, timeout=_LONG_MS)
    expect_state(page, "completed")
    frames: list[tuple[int, int, float]] = page.evaluate("window.frames_")
    early = [spent / added for before, added, spent in frames if _FIRST <= before < _FIRST + _WINDOW]
    late = [spent / added for before, added, spent in frames if before >= _MANY - _WINDOW]
    assert early, json.dumps(frames[:20])
    assert late, json.dumps(frames[-20:])
    assert median(late) < _SLOWER * median(early), (median(early), median(late))
    page.reload()
    expect(documents(page)).to_have_count(_MANY)
    expect(documents(page).last).to_be_in_viewport()
    ask(page, "Still there?")
    expect(answers(page)).to_have_count(2)
    expect(documents(answers(page).last)).to_contain_text("Still there?")
