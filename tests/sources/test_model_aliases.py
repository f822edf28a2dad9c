"""Every name of a Claude, GPT or Gemini model stands for a model of Cursor's."""

import pytest

from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.model_aliases import is_alias, name_for_claude_code, resolve

ALIASES = {
    "opus": "opus",
    "sonnet": "sonnet",
    "haiku": "composer-2.5-fast",
    "fast": "gpt-5-mini",
    "gpt-4o": "gpt",
    "gpt-4o-mini": "mini",
}
IDS = [
    *("auto", "gpt-5-mini", "composer-2", "composer-2.5-fast", "claude-4.5-opus-high", "claude-opus-4-8"),
    *("claude-opus-4-8-thinking-high", "claude-sonnet-5-1m", "claude-sonnet-5-thinking-high", "sonnet-4-20250514"),
    *("gemini-9-pro", "gpt-5.1-codex", "gpt-5.1-codex-high", "gpt-6-nano", "o3-pro"),
]
MODELS = [Model(id, id) for id in IDS]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-opus-5-5", "claude-opus-4-8"),  # the newest, and of its variants the plain one
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("claude-opus-4-8[context=1m]", "claude-opus-4-8[context=1m]"),
        ("claude-sonnet-5", "claude-sonnet-5"),  # a base name, of which there are variants
        ("claude-sonnet-4-5-20250929", "claude-sonnet-5-1m"),
        ("claude-haiku-4-5-20251001", "composer-2.5-fast"),
        ("claude-haiku", "composer-2.5-fast"),
        ("claude-composer-2", "composer-2"),
        ("claude-auto", "auto"),
        ("claude-fable-1", "auto"),
        ("claude-next", "auto"),
        ("fast", "gpt-5-mini"),
        ("opus", "claude-opus-4-8"),
        ("gpt-4o", "gpt-5.1-codex"),  # the newest, but not a small one
        ("gpt-4o-2024-08-06", "gpt-5.1-codex"),
        ("gpt-4.1", "gpt-5.1-codex"),
        ("chatgpt-4o-latest", "gpt-5.1-codex"),
        ("gpt-4o-mini", "gpt-5-mini"),  # not gemini
        ("gpt-3.5-turbo", "gpt-5.1-codex"),
        ("gpt-4.1-nano", "gpt-6-nano"),
        ("o3", "o3"),  # a base name
        ("o1", "auto"),
        ("o4-mini", "gpt-5-mini"),
        ("gpt-35-turbo", "gpt-5.1-codex"),  # Azure's spelling
        ("gpt-35-turbo-16k", "gpt-5.1-codex"),
        ("gpt-4-32k", "gpt-5.1-codex"),
        ("gpt-5", "gpt-5"),  # a base name
        ("gpt-5-mini", "gpt-5-mini"),
        ("gpt-7-pro", "gpt-5.1-codex"),
        ("gpt-oss-120b", "gpt-5.1-codex"),
        ("gemini-2.5-pro", "gemini-9-pro"),
        ("gemini-2.5-flash", "gemini-9-pro"),
    ],
)
def test_a_name_stands_for_a_model(name: str, expected: str) -> None:
    assert is_alias(name, ALIASES)
    assert resolve(name, ALIASES, MODELS) == expected


def test_a_partial_table_leaves_the_other_families_as_they_are() -> None:
    assert resolve("claude-opus-5-5", {"haiku": "auto"}, MODELS) == "claude-opus-4-8"


def test_a_name_of_its_own_comes_before_its_family() -> None:
    aliases = {"opus": "opus", "claude-opus-5-5": "composer-2"}
    assert resolve("claude-opus-5-5", aliases, MODELS) == "composer-2"


def test_without_a_list_it_is_auto() -> None:
    for name in ("claude-opus-5-5", "gpt-35-turbo", "chatgpt-4o-latest", "o3"):
        assert resolve(name, ALIASES, []) == "auto"


@pytest.mark.parametrize("name", ["gpt-5.3-codex-low", "gemini-3-pro"])
def test_without_a_list_what_may_be_cursors_own_is_left_to_the_agent(name: str) -> None:
    assert is_alias(name, ALIASES)
    assert resolve(name, ALIASES, []) == name


@pytest.mark.parametrize("name", ["gpt", "gpt5", "gemini", "o2", "o10", "auto", "claude", "composer-2", "grok-4"])
def test_other_names_are_no_aliases(name: str) -> None:
    assert not is_alias(name, ALIASES)


def test_names_that_claude_code_shows_lead_back() -> None:
    assert name_for_claude_code("claude-opus-4-8") == "claude-opus-4-8"
    assert name_for_claude_code("composer-2") == "claude-composer-2"
    for id in IDS:
        assert resolve(name_for_claude_code(id), ALIASES, MODELS) == id
