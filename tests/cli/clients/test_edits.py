"""Edits of JSON text, checked against the standard library's parser."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.cli.clients import edits
from cursor_gateway.cli.clients.base import JsonFile
from cursor_gateway.cli.clients.table import CLIENTS
from tests.cli.clients.endpoints import FULL, PLAIN

names = st.sampled_from(["a", "b", "env", 'quo"ted', "ü"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
objects = st.dictionaries(names, values, max_size=4)
paths = st.lists(names, min_size=1, max_size=3)
layouts = st.sampled_from([{}, {"indent": 2}, {"indent": "\t"}, {"indent": 4, "separators": (" ,", " : ")}])


def changed(whole: Any, path: list[str], value: Any) -> Any:
    """What setting it means; None: something on the way is no object."""
    if not isinstance(whole, dict):
        return None
    inner = value if len(path) == 1 else changed(whole.get(path[0], {}), path[1:], value)
    return None if inner is None and len(path) > 1 else {**whole, path[0]: inner}


@given(objects, layouts, paths, values)
def test_a_value_is_set_and_nothing_else_changes(
    whole: dict[str, Any], layout: dict[str, Any], path: list[str], value: Any
) -> None:
    text = json.dumps(whole, **layout)
    expected = changed(whole, path, value)
    if expected is None:
        with pytest.raises(edits.NotEditable, match="not an object"):
            edits.set_value(text, path, value)
        return
    after = edits.set_value(text, path, value)
    assert json.dumps(json.loads(after)) == json.dumps(expected)  # the order stays, too
    assert edits.set_value(after, path, value) == after


@given(objects, layouts, names, values)
def test_a_new_member_can_be_removed_again(
    whole: dict[str, Any], layout: dict[str, Any], name: str, value: Any
) -> None:
    whole.pop(name, None)
    text = json.dumps(whole, **layout)
    removed = edits.remove_value(edits.set_value(text, [name], value), [name])
    assert json.dumps(json.loads(removed)) == json.dumps(whole)
    if "\n" in text:
        assert removed == text


@given(objects, layouts, paths)
def test_only_the_named_member_is_removed(whole: dict[str, Any], layout: dict[str, Any], path: list[str]) -> None:
    text = json.dumps(whole, **layout)
    inner: Any = whole
    for name in path[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    after = edits.remove_value(text, path)
    if not isinstance(inner, dict) or path[-1] not in inner:
        assert after == text
        return
    del inner[path[-1]]
    assert json.dumps(json.loads(after)) == json.dumps(whole)


WITH_COMMENTS = """\
// first
{
  /* before */ "a": 1, // after a
  "b": [1, 2, /* in b */],
  "c": {"d": "//no comment"} // after c
  // last
}
// end
"""


def test_comments_stay_where_they_are() -> None:
    after = edits.set_value(WITH_COMMENTS, ["new"], {"x": 1})
    assert after == WITH_COMMENTS.replace('no comment"} //', 'no comment"}, //').replace(
        "  // last\n", '  // last\n  "new": {\n    "x": 1\n  }\n'
    )
    assert edits.remove_value(after, ["new"]) == WITH_COMMENTS
    assert edits.remove_value(WITH_COMMENTS, ["a"]).count("/") == WITH_COMMENTS.count("/")


def test_a_trailing_comma_stays_one() -> None:
    text = '{\n  "a": 1,\n}\n'
    after = edits.set_value(text, ["b"], 2)
    assert after == '{\n  "a": 1,\n  "b": 2,\n}\n'
    assert edits.remove_value(after, ["b"]) == text


def test_line_ends_and_indentation_are_the_texts_own() -> None:
    text = '{\r\n\t"a": {\r\n\t\t"b": 1\r\n\t}\r\n}\r\n'
    assert edits.set_value(text, ["a", "c"], {"d": 2}) == text.replace(
        "1\r\n\t}", '1,\r\n\t\t"c": {\r\n\t\t\t"d": 2\r\n\t\t}\r\n\t}'
    )


def test_a_value_with_comments_is_replaced_as_a_whole() -> None:
    text = '{"a": [1 /* one */]}'
    assert not edits.same_value(text, ["a"], [1])
    assert edits.set_value(text, ["a"], [1]) == '{"a": [\n  1\n]}'
    assert edits.set_raw(text, ["a"], "2") == '{"a": 2}'
    assert edits.set_raw(text, ["b"], "2") == text


def test_the_last_of_two_members_of_one_name_counts() -> None:
    text = '{"a": 1, "a": 2}'
    assert edits.raw(text, ["a"]) == "2"
    assert edits.set_value(text, ["a"], 3) == '{"a": 1, "a": 3}'


def test_what_there_is() -> None:
    text = '{"a": {"b": {}}, "c": 1}'
    assert [edits.depth(text, path) for path in (["x"], ["a", "x"], ["a", "b"], ["c", "x"])] == [0, 1, 2, 1]
    assert edits.is_empty(text, ["a", "b"])
    assert not edits.is_empty(text, ["a"])
    assert not edits.is_empty(text, ["c"])
    assert edits.raw(text, ["a", "x"]) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("{", 1),
        ('{"a" 1}', 1),
        ('{\n"a": }', 2),
        ('{"a": 1 "b": 2}', 1),
        ("{a: 1}", 1),
        ('{"a": [1 2]}', 1),
        ('{"a": "\n"}', 1),
        ('{"a": "\\x"}', 1),
        ('{"a": nul}', 1),
        ("{} x", 1),
        ("{} /* open", 1),
    ],
)
def test_what_is_not_json_is_not_edited(text: str, line: int) -> None:
    with pytest.raises(edits.NotEditable, match=rf"not valid JSON \(line {line}\)"):
        edits.parse(text)


def test_what_holds_no_names_is_not_edited() -> None:
    with pytest.raises(edits.NotEditable, match="not a JSON object"):
        edits.parse("[1]")
    with pytest.raises(edits.NotEditable, match="too deeply"):
        edits.parse("[" * 100_000)


FILES = [kept for client in CLIENTS.values() if isinstance(kept := client.keep(FULL), JsonFile)]

short_scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
short_values = st.recursive(
    short_scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
)
files = st.sampled_from(FILES)
file_layouts = st.sampled_from([{}, {"indent": 2}, {"indent": "\t"}])
# The user's own short_values: also at the places that a client's configuration uses.
users = st.lists(
    st.tuples(
        st.one_of(
            files.flatmap(lambda file: st.sampled_from([path for path, _ in file.values])),
            st.tuples(st.sampled_from(["theme", "provider", "env", "providers"]), st.text(max_size=5)),
        ),
        short_values,
    ),
    max_size=3,
)


@given(files, users, file_layouts)
def test_undone_it_is_what_it_was(file: JsonFile, user: Any, layout: dict[str, Any]) -> None:
    text = written(user, layout)
    try:
        after, changes = edits.merged(text, file.values)
    except edits.NotEditable:
        return
    assert json.loads(edits.undone(after, changes)) == json.loads(text)
    again, _ = edits.merged(after, file.values)
    assert again == after
    for path, value in file.values:
        found = json.loads(after)
        for name in path:
            found = found[name]
        assert found == value


@given(files, users, users, file_layouts)
def test_what_the_user_changed_since_stays(file: JsonFile, user: Any, later: Any, layout: dict[str, Any]) -> None:
    ours = [path for path, _ in file.values]
    changes_of_theirs = [(path, value) for path, value in later if not any(_meet(path, our) for our in ours)]
    text = written(user, layout)
    try:
        after, changes = edits.merged(text, file.values)
        edited, expected = after, text
        for path, value in changes_of_theirs:
            edited, expected = edits.set_value(edited, path, value), edits.set_value(expected, path, value)
    except edits.NotEditable:
        return
    assert json.loads(edits.undone(edited, changes)) == json.loads(expected)


def _meet(one: Any, other: Any) -> bool:
    return bool(one[: len(other)] == other or other[: len(one)] == one)


def written(user: Any, layout: dict[str, Any]) -> str:
    whole: dict[str, Any] = {}
    for path, value in user:
        text = json.dumps(whole)
        try:
            whole = json.loads(edits.set_value(text, path, value))
        except edits.NotEditable:
            continue
    return json.dumps(whole, **layout)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.folder.default)
def test_a_file_that_does_not_exist(file: JsonFile) -> None:
    after, changes = edits.merged("", file.values)
    assert json.loads(after) == edits.nested(file.values)
    assert edits.undone(after, changes) == "{\n}\n"


def test_another_address_replaces_the_first() -> None:
    (file,) = [file for file in FILES if file.folder.default == "~/.claude"]
    kept = CLIENTS["claude"].keep(PLAIN)
    assert isinstance(kept, JsonFile)
    first, _ = edits.merged('{"env": {"ANTHROPIC_BASE_URL": "https://mine"}}', kept.values)
    second, changes = edits.merged(first, file.values)
    assert json.loads(second) == edits.nested(file.values)
    assert edits.undone(second, changes) == first


def test_a_value_where_an_object_should_be() -> None:
    with pytest.raises(edits.NotEditable, match="`provider`"):
        edits.merged('{"provider": "mine"}', [(("provider", "x"), 1)])
