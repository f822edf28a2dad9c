"""One file that needs nothing else, and a stylesheet that everybody can read."""

import base64
import hashlib
import inspect
import re
from itertools import product

import pytest

from cursor_gateway.demo import recordings
from cursor_gateway.model import documents
from cursor_gateway.model.answers import Permission
from cursor_gateway.prompting.replies import permissions_message
from cursor_gateway.reader import read_response
from cursor_gateway.render.html import code
from cursor_gateway.render.html.work import page_style, render_page
from tests.render.test_html_safety import _PAGE_ATTRIBUTES, _PAGE_TAGS, text_of
from tests.render.views import RUN


def response(**changes: object) -> documents.ChatResponse:
    given = {
        "id": "chat_1",
        "conversation_id": "conv_1",
        "model": "auto",
        "mode": "agent",
        "created": "2026-02-23T10:30:00Z",
        "status": "completed",
        "documents": [documents.make_document("doc_001", 1, "Hi", documents.TextMetadata())],
        "usage": documents.Usage(
            prompt_tokens=2450, completion_tokens=890, total_tokens=3340, cached_tokens=1000, estimated=True
        ),
        "metadata": documents.ResponseMetadata(duration_ms=4520, tool_call_count=3, turn_count=2),
    }
    return documents.ChatResponse(**{**given, **changes})  # type: ignore[arg-type] # any field may be given


def page_text(page: str) -> str:
    return text_of(page.partition("\n")[2], _PAGE_TAGS, _PAGE_ATTRIBUTES)


@pytest.mark.parametrize("name", recordings())
def test_every_demo_is_a_page_of_its_own(name: str) -> None:
    page = render_page(read_response([recordings()[name]], RUN), prompt="Do it")
    assert "<script" not in page
    assert "src=" not in page
    assert "<link" not in page
    assert " style=" not in page
    page_text(page)


def test_the_page_tells_what_was_asked_of_whom_and_what_it_cost() -> None:
    result = page_text(render_page(response(), prompt="Implement it\nplease"))
    for fact in ("Implement it\nplease", "auto", "agent", "completed", "2026-02-23 10:30:00 UTC", "4.5 s", "3 calls"):
        assert fact in result
    assert "2,450 in (1,000 cached), 890 out, estimated" in result


def test_what_is_not_known_is_not_shown() -> None:
    empty = response(
        model="unknown",
        created="",
        documents=[],
        usage=documents.Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0),
        metadata=documents.ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=0),
    )
    page = render_page(empty)
    assert "<h1>Answer</h1>" in page
    assert "The answer is empty." in page
    for name in ("Model", "Time", "Took", "Tokens", "Tools", "Prompt"):
        assert name not in page_text(page).replace(page_style(), "")


def test_what_somebody_allowed_is_a_note_and_no_prompt() -> None:
    request = documents.PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    prompt = permissions_message([(request, Permission(decision="once"))])
    page = render_page(response(), prompt=prompt)
    assert '<p class="note">You allowed' in page
    assert "You allowed `npm test` once." in page_text(page)
    assert "You may run this" not in page
    assert 'id="prompt"' not in page


def test_the_title_is_given_or_the_first_words_of_the_prompt() -> None:
    assert "<title>A &amp; B</title>" in render_page(response(), prompt="x", title="A & B")
    assert "<h1>first words</h1>" in render_page(response(), prompt="\n  first words\nmore")
    assert f"<title>{'x' * 79}…</title>" in render_page(response(), prompt="x" * 100)


def test_the_policy_allows_the_style_inside_and_nothing_else() -> None:
    page = render_page(response())
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page


# --- style ------------------------------------------------------------------------------------------


def test_the_style_is_small_and_loads_nothing() -> None:
    assert len(page_style().encode()) < 18_000
    assert not re.search(r"url\(|@import|<", page_style())
    for query in ("prefers-reduced-motion", "forced-colors", "print", "max-width: 30rem"):
        assert query in page_style()


def colours() -> dict[str, tuple[str, str]]:
    """By name: the light one and the dark one."""
    found = re.findall(r"--([a-z-]+): (?:light-dark\((#\w{6}), (#\w{6})\)|(#\w{6}));", page_style())
    return {name: (light or both, dark or both) for name, light, dark, both in found}


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


_CODE = ("ink", "quiet", "comment", "keyword", "string", "number", "function", "class", "builtin", "good", "bad")
_READ = [
    *product(("ink", "quiet", "accent", "good", "bad", "wait"), ("paper", "raised", "side")),
    *product(_CODE, ("raised", "added", "removed")),
    ("on-accent", "accent"),
]


@pytest.mark.parametrize(("ink", "paper"), _READ, ids=" on ".join)
def test_text_can_be_read_in_light_and_dark(ink: str, paper: str) -> None:
    for theme in (0, 1):
        assert contrast(colours()[ink][theme], colours()[paper][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1])
def test_the_edges_of_controls_can_be_seen(theme: int) -> None:
    for paper in ("paper", "raised"):
        assert contrast(colours()["edge"][theme], colours()[paper][theme]) >= 3


def test_every_class_that_code_may_have_is_coloured() -> None:
    written = re.search(r"coloured = \{(.*?)\}", inspect.getsource(code), re.DOTALL)
    assert written
    for name in set(re.findall(r'"([a-z]{1,2})"', written[1])):
        assert re.search(rf"^\.{name}\b", page_style(), re.MULTILINE), name
