"""The list of models: as the program prints it, which names it may take, and how it is kept."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path

import pytest

from cursor_gateway.errors import AgentUnauthenticated, ShuttingDown
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.models import (
    ModelCache,
    is_alias,
    is_known,
    name_for_claude_code,
    nearest,
    parse_models,
    resolve,
)

# As captured of version 2026.08.11.
PRINTED = """Available models

auto - Auto (current, default)
gpt-5.3-codex-low - Codex 5.3 Low
claude-sonnet-5-thinking-high - Claude Sonnet 5 1M Thinking
gpt-5.4-nano-none - GPT-5.4 Nano None

Tip: use --model <id> (or /model <id> in interactive mode) to switch. Parameterized models also accept quoted \
overrides, e.g. --model 'claude-opus-4-8[context=1m,effort=high,fast=false]'.
"""
MODELS = [
    Model("auto", "Auto", is_default=True),
    Model("gpt-5.3-codex-low", "Codex 5.3 Low"),
    Model("claude-sonnet-5-thinking-high", "Claude Sonnet 5 1M Thinking"),
    Model("gpt-5.4-nano-none", "GPT-5.4 Nano None"),
]
CAPTURE = Path(__file__).parents[3] / "shared" / "captures" / "2026.08.11-list-models.txt"


# --- what is printed ------------------------------------------------------------------------------------


def test_the_printed_list_is_read() -> None:
    assert parse_models(PRINTED) == MODELS
    assert parse_models(PRINTED.replace("\n", "\r\n")) == MODELS
    assert parse_models("") == []


@pytest.mark.skipif(not CAPTURE.exists(), reason="the captures are not at hand")
def test_the_captured_list_is_read() -> None:
    assert parse_models(CAPTURE.read_text(encoding="utf-8")) == MODELS


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("a - A (default)", Model("a", "A", is_default=True)),
        ("a - A (current)", Model("a", "A")),
        ("a - A (default, current)", Model("a", "A", is_default=True)),
        ("a - A (beta)", Model("a", "A (beta)")),
        ("a - A (default) B", Model("a", "A (default) B")),
        ("a - (default)", Model("a", "a", is_default=True)),
        ("a - One  two\u200b  three", Model("a", "One two three")),
        ("a - One - two", Model("a", "One - two")),
        ("  \x1b[1ma\x1b[0m - \x1b[32mA\x1b[0m  (default)  ", Model("a", "A", is_default=True)),
        ("base[x=1,y=2] - Base", Model("base[x=1,y=2]", "Base")),
    ],
)
def test_a_line_is_an_id_and_a_label(line: str, model: Model) -> None:
    assert parse_models(f"Available models\n\n{line}\n\nTip: …\n") == [model]


def test_unknown_lines_are_skipped_and_an_id_counts_once() -> None:
    text = "Update available!\na - A\n- b\nc -\nd\n - \nLoading models… done\na - Another\ne - E"
    assert parse_models(text) == [Model("a", "A"), Model("e", "E")]


# --- which names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "known"),
    [
        ("gpt-5.3-codex-low", True),
        ("auto", True),
        ("gpt-5.3-codex", True),
        ("claude-sonnet-5", True),
        ("claude-sonnet-5-thinking-high[fast=true]", True),
        ("claude-sonnet-5[effort=high,fast=true]", True),
        ("auto[]", True),
        ("gpt-5.3-codex-l", False),
        ("claude-opus-4-8[context=1m]", False),
        ("gpt-5.3-codex-low[", False),
        ("GPT-5.3-codex-low", False),
        ("[x]", False),
        ("", False),
    ],
)
def test_a_name_is_known_where_the_agent_may_take_it(id: str, known: bool) -> None:
    assert is_known(id, MODELS) is known


def test_auto_is_always_known() -> None:
    assert is_known("auto", [])


def test_the_nearest_are_found_by_id_and_by_label() -> None:
    assert nearest("gpt-5.3-codex-lo", MODELS)[0] == "gpt-5.3-codex-low"
    assert nearest("Claude Sonnet 5 1M", MODELS)[0] == "claude-sonnet-5-thinking-high"
    assert nearest("NANO", MODELS)[0] == "gpt-5.4-nano-none"
    assert nearest("zzz", MODELS) == []


# --- the cache ------------------------------------------------------------------------------------------


class Agent:
    """What fetches: each fetch waits until it is told how it ends."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[list[Model]]] = []
        self.now = 100.0
        self.cache = ModelCache(self.fetch, 60, lambda: self.now)

    async def fetch(self) -> list[Model]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    async def first(self) -> None:
        waiting = asyncio.create_task(self.cache.get())
        await settle()
        self.asked[-1].set_result(MODELS)
        assert await waiting == MODELS


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Coroutine[object, object, None]) -> None:
    """What nobody looked at is a failure, too: the loop complains of it."""
    complaints: list[object] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await test

    asyncio.run(watched())
    assert complaints == []


async def test_the_first_callers_share_one_fetch() -> None:
    agent = Agent()
    assert agent.cache.peek() is None
    waiting = [asyncio.create_task(agent.cache.get()) for _ in range(3)]
    await settle()
    assert agent.cache.peek() is None
    agent.asked[0].set_result(MODELS)
    assert await asyncio.gather(*waiting) == [MODELS] * 3
    assert agent.cache.peek() == MODELS
    assert len(agent.asked) == 1


async def test_a_caller_that_leaves_does_not_take_the_answer_with_it() -> None:
    agent = Agent()
    leaving, staying = (asyncio.create_task(agent.cache.get()) for _ in range(2))
    await settle()
    leaving.cancel()
    await settle()
    agent.asked[0].set_result(MODELS)
    assert await staying == MODELS
    with suppress(asyncio.CancelledError):
        await leaving


async def test_an_old_list_is_given_at_once_and_fetched_again_behind_it() -> None:
    agent = Agent()
    await agent.first()
    agent.now += 59
    assert await agent.cache.get() == MODELS
    await settle()
    assert len(agent.asked) == 1
    agent.now += 1
    assert await agent.cache.get() == await agent.cache.get() == MODELS
    await settle()
    assert len(agent.asked) == 2
    agent.asked[1].set_result(MODELS[:1])
    await settle()
    assert await agent.cache.get() == agent.cache.peek() == MODELS[:1]


async def test_a_refresh_that_fails_keeps_the_old_list_and_is_not_tried_for_every_request() -> None:
    agent = Agent()
    await agent.first()
    agent.now += 60
    await agent.cache.get()
    await settle()
    agent.asked[1].set_exception(AgentUnauthenticated("Log in."))
    await settle()
    assert await agent.cache.get() == MODELS
    await settle()
    assert len(agent.asked) == 2
    agent.now += 60
    await agent.cache.get()
    await settle()
    assert len(agent.asked) == 3
    await agent.cache.close()


async def test_a_first_fetch_that_fails_fails_for_all_and_is_tried_again_by_the_next() -> None:
    agent = Agent()
    waiting = [asyncio.create_task(agent.cache.get()) for _ in range(2)]
    await settle()
    agent.asked[0].set_exception(AgentUnauthenticated("Log in."))
    result = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in result] == [AgentUnauthenticated] * 2
    await agent.first()
    assert len(agent.asked) == 2


async def test_a_failure_that_nobody_waits_for_any_more_is_no_complaint() -> None:
    agent = Agent()
    waiting = asyncio.create_task(agent.cache.get())
    await settle()
    waiting.cancel()
    await settle()
    agent.asked[0].set_exception(AgentUnauthenticated("Log in."))
    await settle()
    agent.asked.clear()


async def test_closing_ends_what_is_under_way_and_tells_who_waits() -> None:
    agent = Agent()
    await agent.cache.close()
    waiting = asyncio.create_task(agent.cache.get())
    await settle()
    await agent.cache.close()
    assert agent.asked[0].cancelled()
    with pytest.raises(ShuttingDown):
        await waiting
    await agent.cache.close()


# --- Names that clients use ------------------------------------------------------------------------

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
LISTED = [Model(id, id) for id in IDS]


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
    ],
)
def test_a_name_stands_for_a_model(name: str, expected: str) -> None:
    assert is_alias(name, ALIASES)
    assert resolve(name, ALIASES, LISTED) == expected


@pytest.mark.parametrize(
    "name", ["gpt-5.1-codexx", "gpt-5.1-codx-high", "gpt-5.1-codex-hihg", "gpt-6-nanno", "gemini-9-prro"]
)
def test_a_misspelt_name_of_the_list_does_not_stand_for_another_model(name: str) -> None:
    assert not is_alias(name, ALIASES)
    assert not is_known(name, LISTED)  # so it is an error


def test_a_word_does_not_replace_a_model_that_is_listed() -> None:
    listed = [*LISTED, Model("gpt-4o", "GPT-4o")]
    assert resolve("gpt-4o", ALIASES, listed) == "gpt-4o"
    assert resolve("gpt-4o", {"gpt-4o": "composer-2"}, listed) == "composer-2"


def test_a_partial_table_leaves_the_other_families_as_they_are() -> None:
    assert resolve("claude-opus-5-5", {"haiku": "auto"}, LISTED) == "claude-opus-4-8"


def test_a_name_of_its_own_comes_before_its_family() -> None:
    aliases = {"opus": "opus", "claude-opus-5-5": "composer-2"}
    assert resolve("claude-opus-5-5", aliases, LISTED) == "composer-2"


def test_without_a_list_it_is_auto() -> None:
    for name in ("claude-opus-5-5", "gpt-35-turbo", "chatgpt-4o-latest", "o3"):
        assert resolve(name, ALIASES, []) == "auto"


@pytest.mark.parametrize("name", ["gpt-5-mini", "gpt-5", "gpt-40", "gemini-3", "o2", "o10", "auto", "claude"])
def test_other_names_are_no_aliases(name: str) -> None:
    assert not is_alias(name, ALIASES)


def test_names_that_claude_code_shows_lead_back() -> None:
    assert name_for_claude_code("claude-opus-4-8") == "claude-opus-4-8"
    assert name_for_claude_code("composer-2") == "claude-composer-2"
    for id in IDS:
        assert resolve(name_for_claude_code(id), ALIASES, LISTED) == id
