"""A text is found by each of its words, their neighbours and their parts, and by nothing that it does not contain."""

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.stages.search_tokens import Query, find, fold, query, tokens
from tests.strategies import assert_linear

PIECES = [
    "user",
    "Name",
    "HTTP",
    "x",
    "1",
    "28",
    "é",
    "É",
    "e\u0301",
    "ß",
    "SS",
    "Σ",
    "ς",
    "登",
    "录",
    "を",
    "한국",
    "й",
    "٣",
]
texts = st.lists(
    st.one_of(st.sampled_from([*PIECES, "_", ".", "/", "-", " ", "\n", "\0", "\ud800"]), st.text(max_size=3)),
    max_size=12,
).map("".join)
TOKEN = re.compile(r"[^\W_]+|_[^\W_]+_[^\W_]+")


def matches(query: Query, text: str) -> bool:
    """What an engine finds."""
    found = set(tokens(text))
    has_prefix = any(token.startswith(query.prefix) for token in found)
    return has_prefix and found.issuperset(query.tokens)


def every_character() -> Iterator[str]:
    return (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" -- _!", []),
        ("Hello", ["hello"]),
        ("HELLO hello", ["hello", "_hello_hello"]),
        ("UserName", ["username", "user", "name", "_user_name"]),
        ("user_name", ["user", "name", "_user_name"]),
        ("1.28.3", ["1", "28", "_1_28", "3", "_28_3"]),
        ("a/b.py", ["a", "b", "_a_b", "py", "_b_py"]),
        ("HTTPServer2", ["httpserver2", "http", "server2", "_http_server2"]),
        ("ÜberSicht", ["ubersicht", "uber", "sicht", "_uber_sicht"]),
        ("iPhone", ["iphone", "i", "phone", "_i_phone"]),
        ("登录页", ["登", "录", "_登_录", "页", "_录_页"]),
        ("use登录", ["use", "登", "_use_登", "录", "_登_录"]),
        ("e\u0301te\u0301", ["ete"]),
        ("2024", ["2024"]),
    ],
)
def test_a_text_has_its_words_their_neighbours_and_their_parts(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Query()),
        (["!"], Query()),
        (["Log"], Query((), "log")),
        (["fix", "Log"], Query(("fix",), "log")),
        (["x"], Query(("x",))),
        (['"x'], Query(("x",))),
        (["登"], Query(("登",))),
        (["登录"], Query((), "_登_录")),
        (["src/main.py"], Query(("_src_main",), "_main_py")),
        (["a", "a", "a"], Query(("a",))),
    ],
)
def test_a_query_needs_words_or_for_words_without_space_pairs(words: list[str], expected: Query) -> None:
    assert query(words) == expected


def test_a_query_has_a_limit() -> None:
    assert len(query(["登录页面" * 100]).tokens) <= 64
    assert len(query([f"w{number}" for number in range(100)] + ["x"]).tokens) == 64


@given(texts)
def test_tokens_are_what_every_engine_can_store(text: str) -> None:
    found = tokens(text)
    assert len(found) == len(set(found))
    assert all(TOKEN.fullmatch(token) for token in found)


def test_every_character_folds_into_something_that_is_still_a_word() -> None:
    for character in every_character():
        if character.isalnum():
            assert TOKEN.fullmatch(fold(character)), hex(ord(character))
            assert fold(fold(character)) == fold(character), hex(ord(character))


@given(texts, texts)
def test_a_text_is_found_by_any_word_of_it_in_any_case(before: str, after: str) -> None:
    for word in re.findall(r"[^\W_]+", f"{before} {after}"):
        for typed in (word, word.upper().lower(), word.casefold()):
            assert matches(query([typed]), f"{before} {word} {after}")


@given(texts, st.data())
def test_a_text_is_found_by_any_piece_between_two_words(text: str, data: st.DataObject) -> None:
    """From the beginning of a word to the end of another. An accent of its own belongs to the letter before it."""
    text = "".join(character for character in text if not category(character).startswith("M"))
    bounds = [found.span() for found in re.finditer(r"[^\W_]+", text)]
    if bounds:
        first = data.draw(st.integers(0, len(bounds) - 1))
        last = data.draw(st.integers(first, len(bounds) - 1))
        piece = text[bounds[first][0] : bounds[last][1]]
        assert matches(query(piece.split()), text)
        assert matches(query([piece]), text)


@given(st.lists(st.sampled_from(["user", "name", "http", "get", "id"]), min_size=1, max_size=5), st.data())
def test_an_identifier_is_found_by_its_parts_however_it_is_written(parts: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(parts) - 1))
    wanted = "_".join(parts[first : data.draw(st.integers(first + 1, len(parts)))])
    camel = "".join(part.title() for part in parts)
    for written in (camel, camel[0].lower() + camel[1:], "_".join(parts), "-".join(parts), "/".join(parts)):
        assert matches(query([wanted]), f"see {written}()"), written
    assert matches(query([camel]), f"see {camel.upper()}()")


@given(texts, texts)
def test_a_text_never_matches_by_a_token_that_it_does_not_contain(text: str, typed: str) -> None:
    asked = query(typed.split())
    plain = "".join(re.findall(r"[^\W_]+", fold(text)))
    if matches(asked, text) and text:
        for token in (*asked.tokens, asked.prefix):
            assert token.replace("_", "") in plain


@given(texts, texts)
def test_a_match_is_found_in_its_text(text: str, typed: str) -> None:
    asked = query(typed.split())
    text = f"!!! {text}"
    at = find(text, asked)
    assert text[at].isalnum() or (at == 0 and not (matches(asked, text) and (asked.tokens or asked.prefix)))


def test_words_are_found_where_they_are() -> None:
    assert find("see getUserName", query(["user_na"])) == 4
    assert find("see Résumé", query(["resu"])) == 4
    assert find("see this and that", query(["nothing", "th"])) == 4
    assert find("again again x", query(["x"])) == 12
    assert find("nothing here", query(["x"])) == 0
    assert find("this and that", query([])) == 0


def test_a_long_word_is_cut_in_texts_and_in_queries() -> None:
    assert matches(query(["a" * 1000]), "x " + "a" * 5000)
    assert max(map(len, tokens("ab" * 5000 + " " + "cd" * 5000))) <= 258


@pytest.mark.parametrize("unit", ["a", "aB", "é", "e\u0301\u0323", "登", "a.", "\u0301", "A "])
def test_tokens_cost_linear_time(unit: str) -> None:
    assert_linear(lambda size: tokens(unit * size))


def test_case_and_accents_are_ignored_as_by_unicode61() -> None:
    """SQLite's tokenizer, which the index used before: what it took for the same is still the same."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE old USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')")
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (old, instance)")
        letters = [character for character in every_character() if character.isalnum()]
        connection.executemany("INSERT INTO old (rowid, text) VALUES (?, ?)", [(ord(one), one) for one in letters])
        folded: dict[str, list[str]] = {}
        for term, code in connection.execute("SELECT term, doc FROM terms"):
            folded.setdefault(term, []).append(chr(code))
    for same in folded.values():
        assert len({fold(character) for character in same}) == 1, same
    changed = [term for term in folded if fold(term) not in (term, term.casefold().replace("\u0307", ""))]
    assert all(
        fold(term).isascii() or any("\u0300" <= mark <= "\u036f" for mark in term.casefold()) for term in changed
    )
