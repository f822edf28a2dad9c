"""What is added to YAML files: a parser finds it, finds all that was there before, and each byte can be taken back."""

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its types are another package
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.cli.clients.base import ListItems
from cursor_gateway.cli.clients.edits import NotEditable, merged_yaml, undo

ITEM = {"name": "Ä: #1", "roles": ["chat"], "no": None}
MODELS = ListItems("models", [ITEM])
KEYS = {"model": "openai/auto", "key": 'a "b" # c'}

CONTINUE = """\
# mine
name: My Assistant   # a comment
version: 1.0.0

models:
  # the best one
  - name: GPT
    provider: openai
    apiKey: ${{ secrets.KEY }}
    systemMessage: |
      Don't say: "maybe

      # no comment
  - {"name": "Auto", "roles": ["chat", "edit"]}

# what else
rules:
  - "Be brief: always"
  - It's fine
context:
- provider: code
"""


def expected(before: Any, entries: dict[str, str] | ListItems) -> Any:
    if not isinstance(entries, ListItems):
        return {**(before or {}), **entries}
    if not entries.key:
        return [*(before or []), *entries.items]
    return {**(before or {}), entries.key: [*((before or {}).get(entries.key) or []), *entries.items]}


def check(text: str, entries: dict[str, str] | ListItems) -> str:
    after, edits = merged_yaml(text, entries)
    assert yaml.safe_load(after) == expected(yaml.safe_load(text), entries)
    assert undo(after, edits) == text
    again, more = merged_yaml(after, entries)
    assert (again, more) == (after, [])
    return after


@pytest.mark.parametrize(
    "text",
    [
        CONTINUE,
        "---\nname: x\n",
        "models:\n- name: a\n",  # without indentation
        "models:\n    - name: a\n      more:\n        - 1\nlast: 1\n",
        "models: # mine\n\n  - a\n",
        "prompt: >-\n  models:\n    - x\nname: a\n",
        "a: 'it''s'\n",
        "base: &base\n  a: 1\nother:\n  <<: *base\n",
    ],
)
def test_items_of_a_list(text: str) -> None:
    after = check(text, MODELS)
    assert all(line in after.splitlines() for line in text.splitlines())


@pytest.mark.parametrize("text", ["- a: 1\n  b: 2\n- c\n", "# none yet\n", "- |\n  text\n"])
def test_items_of_a_file_that_is_a_list(text: str) -> None:
    check(text, ListItems("", [ITEM]))


@pytest.mark.parametrize("text", ["# mine\n", "model: gpt # mine\nkey: 1\ndark-mode: true\n", "read: [a.md, b.md]\n"])
def test_keys(text: str) -> None:
    check(text, KEYS)


@pytest.mark.parametrize(
    "text",
    [
        "name: x",  # no end of line
        "name: x\r\n",
        "name:\tx\n",
        'a: "one\nmodels: two"\n',
        "a: 'one\nmodels: two'\n",
        "a: [1,\n  2]\n",
        "a: {b: [}]\n",
        "a:\n  - [1,\nmodels: 2]\n",
        "models: []\n",
        "models:\n  a: 1\n",
        "models: gpt\n",
        "models:\n",
        '"models":\n  - a\n',
        "? models\n: - a\n",
        "{a: 1}\n",
        "- a\n",
        "a: 1\n---\nb: 2\n",
        "a: 1\na: 2\n",
        "%YAML 1.2\n---\na: 1\n",
        "  a: 1\n",
        "a: !!str 1\n",
        "a: |+\n  text\n\n",
        "a: b: c\n",
        "a: \x1b\n",
        "a: \u200b\n",
        "a: 'b' c\n",
        "a:\n  - - 'b\nc: d'\n",
    ],
)
def test_what_may_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(NotEditable):
        merged_yaml(text, MODELS)


@pytest.mark.parametrize("text", ["model: |\n  a\n", "model:\n  a: 1\n", "model: [a]\n", "model:\n"])
def test_a_value_that_is_no_short_text_is_not_replaced(text: str) -> None:
    with pytest.raises(NotEditable, match="`model`"):
        merged_yaml(text, KEYS)


def test_what_the_user_added_since_stays() -> None:
    after, edits = merged_yaml(CONTINUE, MODELS)
    assert undo(f"# more\n{after}last: 1\n", edits) == f"# more\n{CONTINUE}last: 1\n"
    with pytest.raises(NotEditable, match="changed since"):
        undo(CONTINUE, edits)
    replaced, edits = merged_yaml("model: gpt # mine\n", {"model": "auto"})
    assert replaced == 'model: "auto"\n'
    assert undo(f"a: 1\n{replaced}", edits) == "a: 1\nmodel: gpt # mine\n"


_words = st.text(st.sampled_from("ab:#-\"'[]{}|>&*! \n,0%?"), max_size=12)
_values = st.recursive(
    st.one_of(_words, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_words, inner, max_size=3)),
    max_leaves=6,
)
_keys = st.sampled_from(["a", "b-c", "models", "model", "key"])


@given(
    st.dictionaries(_keys, _values, max_size=4),
    st.sampled_from([None, "|", ">", '"', "'"]),
    st.sampled_from([True, False, None]),
    st.integers(10, 100),
    st.sampled_from([MODELS, KEYS]),
)
def test_whatever_a_file_says_it_is_kept_or_the_file_is_refused(
    value: dict[str, Any], style: str | None, flow: bool | None, width: int, entries: Any
) -> None:
    """With every style that a parser's own writer has."""
    text = yaml.safe_dump(value, default_style=style, default_flow_style=flow, width=width, allow_unicode=True)
    try:
        merged_yaml(text, entries)
    except NotEditable:
        return
    check(text, entries)


@given(
    st.lists(st.sampled_from([*CONTINUE.splitlines(), 'a: "b', 'c"', "x: |", "  y", "- z", "", "  - 'q"]), max_size=9)
)
def test_lines_in_any_order(lines: list[str]) -> None:
    """Many are no YAML at all. What a parser accepts is merged, or refused."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        yaml.safe_load(text)
        merged_yaml(text, MODELS)
    except (yaml.YAMLError, NotEditable):
        return
    check(text, MODELS)
