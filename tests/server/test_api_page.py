"""The page shows all of the document, is safe with any text, can be read by everybody, and its commands work."""

import copy
import json
import re
import shlex
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.server.api_page import api_page, api_style
from cursor_gateway.server.openapi import openapi_document
from cursor_gateway.settings import Settings

Json = dict[str, Any]

BASE = "http://127.0.0.1:8787"
VOID = {"meta", "link", "wbr"}
EVIL = "</code><script>alert(1)</script>\" onmouseover='x' & [a](javascript:alert(1)) ![i](https://example.org/i.png)"


class Reader(HTMLParser):
    """A page in; its elements, its texts, and whether every element is closed, out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def values(self, attribute: str, *tags: str) -> list[str]:
        return [
            attributes[attribute]
            for tag, attributes in self.elements
            if attribute in attributes and (not tags or tag in tags)
        ]


@pytest.fixture(scope="module")
def document() -> Json:
    return openapi_document("1.2.3", dialects_of(Settings()))


@pytest.fixture(scope="module")
def page(document: Json) -> str:
    return api_page(document, BASE)


@pytest.fixture(scope="module")
def reader(page: str) -> Reader:
    return Reader(page)


@pytest.fixture(scope="module")
def text(reader: Reader) -> str:
    return reader.texts["body"][0]


# --- what it shows ---------------------------------------------------------------------------------------


def test_it_says_what_it_is_and_where(reader: Reader, text: str) -> None:
    assert reader.texts["title"] == ["cursor-gateway API"]
    assert reader.texts["h1"] == ["cursor-gateway 1.2.3"]
    assert f"Base URL: {BASE}." in text


def test_every_operation_is_in_the_table_in_the_contents_and_on_the_page(
    document: Json, reader: Reader, text: str
) -> None:
    ids, links = set(reader.values("id")), reader.values("href", "a")
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["operationId"] in ids
            assert links.count(f"#{operation['operationId']}") == 2
            assert f"{method.upper()} {path}" in text
            assert operation["summary"] in reader.texts["h3"]


def test_every_field_every_header_every_error_and_every_schema_is_there(document: Json, reader: Reader) -> None:
    names = set(reader.texts["code"])
    for item in document["paths"].values():
        for operation in item.values():
            for status, reply in operation["responses"].items():
                has_codes = not status.startswith("2") and "application/json" in reply["content"]
                codes = reply["content"]["application/json"]["examples"] if has_codes else []
                assert {status, *codes} <= names
    for name, schema in document["components"]["schemas"].items():
        assert {name, *schema.get("properties", ())} <= names
    assert {*document["components"]["headers"]} - {
        "Retry-After",
        "WWW-Authenticate",
        "Allow",
        "X-Should-Retry",
    } <= names


def test_types_are_described_in_words(text: str) -> None:
    assert '"auto", "none", "required", ChatCompletionToolChoice or null' in text
    assert (
        "list of ChatCompletionTextPart, ChatCompletionRefusalPart, ChatCompletionImagePart or ChatCompletionFilePart"
        in text
    )
    assert "ChatResponse and ErrorReply" in text
    assert "any value" in text


# --- its commands ----------------------------------------------------------------------------------------


def commands(page: str) -> list[list[str]]:
    blocks = Reader(page).texts["pre"]
    return [shlex.split(text.replace("\\\n", "")) for text in blocks if text.startswith("curl ")]


@pytest.mark.parametrize("base", [BASE, "https://[::1]:8787/a b/'c'"])
def test_the_commands_can_be_pasted_into_a_shell(base: str, document: Json) -> None:
    found = commands(api_page(document, base))
    assert len(found) == sum(len(item) for item in document["paths"].values()) + 2
    for command in found:
        (url,) = [word for word in command if word.startswith(base)]
        assert "{" not in url
        if "-d" in command:
            body = json.loads(command[command.index("-d") + 1])
            assert command[command.index("-H") + 1] == "Content-Type: application/json"
            assert ("-N" in command) == (body.get("stream") is True)


def test_each_operation_has_its_own_command(document: Json, page: str) -> None:
    urls = [word.removeprefix(BASE) for command in commands(page) for word in command if word.startswith(BASE)]
    for path in document["paths"]:
        pattern = re.sub(r"\\{\w+\\}", "[^/{}]+", re.escape(path))
        assert any(re.fullmatch(pattern, url) for url in urls), path


def test_the_python_is_python_for_this_gateway(reader: Reader) -> None:
    (snippet,) = [text for text in reader.texts["pre"] if text.startswith("from openai")]
    compile(snippet, "snippet", "exec")
    assert f'base_url="{BASE}/v1"' in snippet


# --- safety ----------------------------------------------------------------------------------------------


def harmless(page: str) -> None:
    reader = Reader(page)
    assert not {tag for tag, _ in reader.elements} & {"script", "style", "img", "iframe", "form", "object", "base"}
    for _, attributes in reader.elements:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
    for link in reader.values("href") + reader.values("src"):
        assert link in ("docs.css", "openapi.json") or link.startswith(("#", "https:"))


def poisoned(value: Any) -> Any:
    """With an evil text wherever words stand."""
    words = ("title", "version", "summary", "description")
    match value:
        case dict():
            return {
                key: f"{item} {EVIL}" if key in words and isinstance(item, str) else poisoned(item)
                for key, item in value.items()
            }
        case list():
            return [poisoned(item) for item in value]
        case _:
            return value


def test_it_needs_no_script_no_style_of_its_own_and_nothing_from_elsewhere(page: str) -> None:
    harmless(page)
    assert "https:" not in page


def test_no_text_becomes_a_part_of_the_page(document: Json) -> None:
    poison = poisoned(copy.deepcopy(document))
    poison["tags"][0]["name"] = EVIL
    poison["paths"]["/v1/chat"]["post"]["tags"] = [EVIL]
    poison["components"]["schemas"][f"Evil{EVIL}"] = {"description": "", "enum": [EVIL], "properties": {}}
    poison["components"]["schemas"]["ListedModel"]["properties"][EVIL] = {"$ref": f"#/components/schemas/{EVIL}"}
    page = api_page(poison, f"http://x/{EVIL}")
    harmless(page)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


# --- for everybody ---------------------------------------------------------------------------------------


def test_it_has_landmarks_and_a_language(reader: Reader) -> None:
    tags = [tag for tag, _ in reader.elements]
    assert [tags.count(tag) for tag in ("main", "nav", "h1")] == [1, 1, 1]
    assert ("html", {"lang": "en"}) in reader.elements
    assert reader.values("aria-label", "nav") == ["On this page"]
    assert any("width=device-width" in content for content in reader.values("content", "meta"))


def test_headings_go_down_one_step_at_a_time(reader: Reader) -> None:
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_link_leads_somewhere_and_every_id_stands_once(reader: Reader) -> None:
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in reader.values("href") if link.startswith("#")} <= set(ids)
    assert set(reader.values("aria-labelledby")) <= set(ids)


def luminance(color: str) -> float:
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_both_palettes_can_be_read() -> None:
    palettes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{[^}]*\}", api_style())
    ]
    light, dark = palettes
    assert light.keys() == dark.keys()
    for palette in palettes:
        for ground in ("paper", "raised"):
            for ink in palette.keys() - {"paper", "raised", "line"}:
                assert contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)


def test_the_style_fetches_nothing() -> None:
    assert "@import" not in api_style()
    assert "url(" not in api_style()
