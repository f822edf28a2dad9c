"""What is put into a user's file can be taken back, whatever else happened to the file."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.cli.clients.base import JsonFile
from cursor_gateway.cli.clients.json_text import NotEditable, set_value
from cursor_gateway.cli.clients.merging import merged, nested, undone
from cursor_gateway.cli.clients.table import CLIENTS
from tests.cli.clients.endpoints import FULL, PLAIN

FILES = [kept for client in CLIENTS.values() if isinstance(kept := client.keep(FULL), JsonFile)]

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
)
files = st.sampled_from(FILES)
layouts = st.sampled_from([{}, {"indent": 2}, {"indent": "\t"}])
# The user's own values: also at the places that a client's configuration uses.
users = st.lists(
    st.tuples(
        st.one_of(
            files.flatmap(lambda file: st.sampled_from([path for path, _ in file.values])),
            st.tuples(st.sampled_from(["theme", "provider", "env", "providers"]), st.text(max_size=5)),
        ),
        values,
    ),
    max_size=3,
)


@given(files, users, layouts)
def test_undone_it_is_what_it_was(file: JsonFile, user: Any, layout: dict[str, Any]) -> None:
    text = written(user, layout)
    try:
        after, changes = merged(text, file.values)
    except NotEditable:
        return
    assert json.loads(undone(after, changes)) == json.loads(text)
    again, _ = merged(after, file.values)
    assert again == after
    for path, value in file.values:
        found = json.loads(after)
        for name in path:
            found = found[name]
        assert found == value


@given(files, users, users, layouts)
def test_what_the_user_changed_since_stays(file: JsonFile, user: Any, later: Any, layout: dict[str, Any]) -> None:
    ours = [path for path, _ in file.values]
    changes_of_theirs = [(path, value) for path, value in later if not any(_meet(path, our) for our in ours)]
    text = written(user, layout)
    try:
        after, changes = merged(text, file.values)
        edited, expected = after, text
        for path, value in changes_of_theirs:
            edited, expected = set_value(edited, path, value), set_value(expected, path, value)
    except NotEditable:
        return
    assert json.loads(undone(edited, changes)) == json.loads(expected)


def _meet(one: Any, other: Any) -> bool:
    return bool(one[: len(other)] == other or other[: len(one)] == one)


def written(user: Any, layout: dict[str, Any]) -> str:
    whole: dict[str, Any] = {}
    for path, value in user:
        text = json.dumps(whole)
        try:
            whole = json.loads(set_value(text, path, value))
        except NotEditable:
            continue
    return json.dumps(whole, **layout)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.folder.default)
def test_a_file_that_does_not_exist(file: JsonFile) -> None:
    after, changes = merged("", file.values)
    assert json.loads(after) == nested(file.values)
    assert undone(after, changes) == "{\n}\n"


def test_another_address_replaces_the_first() -> None:
    (file,) = [file for file in FILES if file.folder.default == "~/.claude"]
    kept = CLIENTS["claude"].keep(PLAIN)
    assert isinstance(kept, JsonFile)
    first, _ = merged('{"env": {"ANTHROPIC_BASE_URL": "https://mine"}}', kept.values)
    second, changes = merged(first, file.values)
    assert json.loads(second) == nested(file.values)
    assert undone(second, changes) == first


def test_a_value_where_an_object_should_be() -> None:
    with pytest.raises(NotEditable, match="`provider`"):
        merged('{"provider": "mine"}', [(("provider", "x"), 1)])
