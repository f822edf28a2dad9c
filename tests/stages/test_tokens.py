"""An estimate is near the truth, and as steady as a count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.stages.tokens import estimate_tokens, estimate_tokens_by_sample
from tests.strategies import assert_linear, examples

# Texts of our own; the numbers are what the o200k vocabulary makes of them.
COUNTED = {
    "English": (
        "The gateway reads what the agent writes, line by line, and turns it into documents that a page can show at "
        "once. Nothing is held back longer than it must be, and nothing that was said is lost.",
        43,
    ),
    "a list": (
        "- Add a login form to the start page\n- Check the password on the server\n- Send a mail when it was changed\n",
        27,
    ),
    "German": (
        "Die Schnittstelle liest Zeile für Zeile, was der Agent schreibt, und macht daraus Dokumente, die eine Seite "
        "sofort anzeigen kann. Größere Änderungen müssen vorher geprüft werden.",
        37,
    ),
    "Russian": (
        "Шлюз построчно читает вывод агента и превращает его в документы, которые страница может сразу показать. "
        "Ничего не теряется и ничего не повторяется.",
        37,
    ),
    "Chinese": ("网关逐行读取代理的输出，并把它转换成页面可以立即显示的文档。任何内容都不会丢失，也不会重复显示。", 33),
    "Python": (
        'def authenticate(token: str) -> User | None:\n    """The user whose token this is."""\n    try:\n'
        '        claims = jwt.decode(token, SECRET_KEY, algorithms=["HS256"])\n    except jwt.InvalidTokenError:\n'
        '        return None\n    return find_user(claims["user_id"])\n',
        60,
    ),
    "TypeScript": (
        "export async function load(id: string): Promise<User> {\n  const response = await fetch(`/api/users/${id}`);\n"
        "  if (!response.ok) {\n    throw new Error(response.statusText);\n  }\n  return response.json();\n}\n",
        47,
    ),
    "JSON": (
        '{"id": "doc_004", "type": "file_edit", "sequence": 4, "metadata": {"filePath": "src/main.py", '
        '"operation": "edit", "language": "python", "startLine": 14, "endLine": 14}}',
        59,
    ),
    "a shell": ("$ pip install --quiet PyJWT==2.8.0 && pytest -q tests/test_login.py\n12 passed in 3.41s\n", 31),
    "numbers": ("2024-01-15 10:30:00, 1048576 bytes, 3.14159, 127.0.0.1:8080, 99.9 %, 0xff, 1234567890\n", 52),
}

PIECES = [
    "a",
    "word ",
    " ",
    "  ",
    "\t",
    "\n",
    "\n    ",
    "1",
    "123",
    "é",
    "Größe",
    "ё" * 7,
    "世",
    "界" * 5,
    "한국",
    "_",
    ".",
    "->",
]


@pytest.mark.parametrize("name", COUNTED)
def test_an_estimate_is_within_a_fifth_of_the_truth(name: str) -> None:
    text, count = COUNTED[name]
    assert abs(estimate_tokens(text) - count) <= count / 5


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("word", 1),
        ("a word", 2),
        ("internationalization", 2),
        (" ", 0),
        ("  ", 1),
        ("\n    ", 1),
        ("a\n\n    b", 3),
        ("123", 1),
        ("1234", 2),
        ("->", 1),
        ("----", 2),
        ("größer", 3),
        ("слово", 1),
        ("世界", 2),
    ],
)
def test_a_piece_that_vocabularies_agree_on_is_one_token(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_nothing_costs_nothing() -> None:
    assert estimate_tokens("") == 0


@given(st.text(min_size=1))
def test_no_text_costs_less_than_nothing_or_more_than_its_characters(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= len(text)


pieces = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=6).map("".join)


@given(pieces, pieces)
@examples(1000)
def test_two_texts_together_cost_their_sum_give_or_take_the_token_at_the_seam(first: str, second: str) -> None:
    apart = estimate_tokens(first) + estimate_tokens(second)
    assert abs(estimate_tokens(first + second) - apart) <= 1


@pytest.mark.parametrize("unit", [" ", "a", "7", "é", "世", "-", " \n", "a ", "_-"])
def test_a_long_text_is_read_once(unit: str) -> None:
    assert_linear(lambda size: estimate_tokens(unit * size + "x"))


@given(text=st.text(max_size=64))
def test_a_short_text_is_counted_whole(text: str) -> None:
    assert estimate_tokens_by_sample(text) == estimate_tokens(text)


@pytest.mark.parametrize("name", COUNTED)
def test_an_estimate_of_a_longer_text_is_near_the_truth(name: str) -> None:
    text, count = COUNTED[name]
    for times in (1, 3, 200):
        assert abs(estimate_tokens_by_sample(text * times) - count * times) <= count * times / 5


def test_a_sample_reaches_from_the_beginning_to_the_end() -> None:
    blank, words = " " * 3000, "word " * 600
    assert estimate_tokens_by_sample(blank + words) > 100
    assert estimate_tokens_by_sample(words + blank) > 100
