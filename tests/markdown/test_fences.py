"""The splitter's laws: nothing is lost, chunks do not matter, little is held back, and CommonMark decides."""

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cursor_gateway.markdown.fences import (
    Code,
    CodeTag,
    FenceClosed,
    FenceOpened,
    FenceSplitter,
    Piece,
    Prose,
    ReferenceTag,
    Tag,
    read_info,
)
from cursor_gateway.model.requests import Fences
from tests.strategies import MARKDOWN, assert_linear, chunks, cut, examples, markdown, outputs, places, work

COMMONMARK = MarkdownIt("commonmark")
Found = list[tuple[Tag, str]]

# Text with every kind of line end, and with anything between.
soup = st.lists(
    st.sampled_from([*MARKDOWN, "\r", "\r\n", "\r", "\r\n", "```py\r\n", "\r~~~", "1:2:C:\\a b.ts", "\u00a0"])
    | st.characters(),
    max_size=16,
).map("".join)


def raw(piece: Piece) -> str:
    return piece.text if isinstance(piece, Prose) else piece.raw


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours of one kind become one: how they were cut is nobody's business."""
    out: list[Piece] = []
    for piece in pieces:
        match out[-1:], piece:
            case [Prose(text=before)], Prose(text=text):
                out[-1] = Prose(before + text)
            case [Code(text=before, raw=raw_before)], Code(text=text, raw=raw_text):
                out[-1] = Code(before + text, raw_before + raw_text)
            case _:
                out.append(piece)
    return out


def split(text: str, size: int = 1_000_000, fences: Fences = "split") -> list[Piece]:
    return joined(outputs(FenceSplitter(fences), chunks(text, size)))


def ours(pieces: Iterable[Piece]) -> Found:
    """The fences with their content, and on the way: they open and close in turn, with code only inside."""
    found: Found = []
    is_open = False
    for piece in pieces:
        match piece:
            case FenceOpened(tag=tag):
                assert not is_open
                found.append((tag, ""))
            case Code(text=text):
                assert is_open
                found[-1] = (found[-1][0], found[-1][1] + text)
            case FenceClosed():
                assert is_open
            case Prose():
                assert not is_open
        is_open = isinstance(piece, FenceOpened | Code)
    assert not is_open
    return found


def theirs(text: str) -> Found:
    found: Found = []
    quotes = 0
    for token in COMMONMARK.parse(text):
        match token.type:
            case "blockquote_open":
                quotes += 1
            case "blockquote_close":
                quotes -= 1
            case "fence":
                tag = read_info(token.info.strip(" \t"))
                if tag is not None and not quotes:
                    found.append((tag, token.content.removesuffix("\n")))
            case _:
                pass
    return found


# --- CommonMark -----------------------------------------------------------------------------------


@given(markdown)
@examples(1500)
def test_generated_text_has_the_fences_that_markdown_it_finds_in_any_chunking(text: str) -> None:
    text += "\n"  # without it, markdown-it drops white space at the end
    whole = split(text)
    assert ours(whole) == theirs(text)
    for size in (1, 2, 3):
        assert split(text, size) == whole


PY = CodeTag("py")

RULES: dict[str, tuple[str, Found]] = {
    "a fence with a language is code": ("```py\nx\n```\n", [(PY, "x")]),
    "tildes, too": ("~~~py\nx\n~~~\n", [(PY, "x")]),
    "a fence without one is prose": ("```\nx\n```\n", []),
    "and what looks like a fence inside it": ("````\n```py\nx\n```\n````\n", []),
    "the language is the first word": ("``` py  lines=3\nx\n```\n", [(PY, "x")]),
    "a longer fence holds a shorter one": ("````md\n```py\nx\n```\n````\n", [(CodeTag("md"), "```py\nx\n```")]),
    "tildes hold backticks": ("~~~md\n```py\n~~~\n", [(CodeTag("md"), "```py")]),
    "a closing fence may be longer": ("```py\nx\n`````\n", [(PY, "x")]),
    "but not shorter": ("````py\nx\n```\n````\n", [(PY, "x\n```")]),
    "nor of the other kind": ("```py\n~~~\n```\n", [(PY, "~~~")]),
    "nor followed by anything": ("```py\n```x\n```\n", [(PY, "```x")]),
    "an opening fence may be indented by three": ("   ```py\n   x\n   ```\n", [(PY, "x")]),
    "by four it is none": ("    ```py\n    x\n    ```\n", []),
    "a closing one may be, too": ("```py\nx\n   ```\n", [(PY, "x")]),
    "by four it is content": ("```py\nx\n    ```\n", [(PY, "x\n    ```")]),
    "its indentation comes off its content": ("  ```py\n    x\n y\n  ```\n", [(PY, "  x\ny")]),
    "a backtick in the info makes it prose": ("```py`\nx\n", []),
    "not in the info of tildes": ("~~~py`\nx\n~~~\n", [(CodeTag("py`"), "x")]),
    "it may interrupt a paragraph": ("a\n```py\nx\n```\nb\n", [(PY, "x")]),
    "the end of the text closes it": ("```py\nx\n", [(PY, "x")]),
    "an empty one is code": ("```py\n```\n", [(PY, "")]),
    "an empty one without an end, too": ("```py\n", [(PY, "")]),
    "blank lines are content": ("```py\n\n\nx\n\n```\n", [(PY, "\n\nx\n")]),
    "in a list item it is dedented": ("- a\n\n  ```py\n  x\n    y\n  ```\n", [(PY, "x\n  y")]),
    "right after a marker, too": ("1. ```py\n   x\n   ```\n", [(PY, "x")]),
    "and in an item of an item": ("- - ```py\n    x\n", [(PY, "x")]),
    "the end of the item is the end of the fence": ("- ```py\n  x\na\n", [(PY, "x")]),
    "the next item ends it, too": ("- ```py\n  x\n- ```py\n  y\n", [(PY, "x"), (PY, "y")]),
    "so does a fence outside": ("- ```py\n  x\n```py\ny\n```\n", [(PY, "x"), (PY, "y")]),
    "in a quote it is prose": ("> ```py\n> x\n> ```\n", []),
    "after the quote it is not": ("> ```py\n> x\n```py\ny\n```\n", [(PY, "y")]),
    "in an HTML block it is prose": ("<div>\n```py\n</div>\n\n```py\nx\n", [(PY, "x")]),
    "a reference is code, too": ("```12:14:src/a b.py\nx\n```\n", [(ReferenceTag(12, 14, "src/a b.py"), "x")]),
}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("rule", RULES)
def test_the_rule(rule: str, size: int) -> None:
    text, expected = RULES[rule]
    assert ours(split(text, size)) == expected
    assert theirs(text) == expected


@given(markdown)
@examples(500)
def test_the_kind_of_line_end_does_not_matter(text: str) -> None:
    expected = ours(split(text))
    for line_end in ("\r\n", "\r"):
        found = ours(split(text.replace("\n", line_end)))
        assert [(tag, code.replace(line_end, "\n")) for tag, code in found] == expected


# --- Nothing is lost ------------------------------------------------------------------------------


@given(soup, places, st.sampled_from(["split", "inline"]))
@examples(800)
def test_the_raws_are_the_text_and_chunks_do_not_matter(text: str, where: list[int], fences: Fences) -> None:
    whole = split(text, fences=fences)
    assert "".join(raw(piece) for piece in whole) == text
    assert joined(outputs(FenceSplitter(fences), cut(text, where))) == whole
    assert split(text, 1, fences) == whole
    ours(whole)


@given(soup, soup)
@examples(300)
def test_after_a_flush_the_next_text_starts_over(first: str, second: str) -> None:
    splitter = FenceSplitter()
    outputs(splitter, chunks(first, 3))
    assert not splitter.in_code
    assert not splitter.flowing
    assert joined(outputs(splitter, [second])) == split(second)


def test_code_differs_from_its_raw_by_its_indentation_only() -> None:
    assert split("- ```py\n  a\n    b\n  ```\nc") == [
        FenceOpened(PY, 2, "- ```py\n"),
        Code("a\n  b", "  a\n    b"),
        FenceClosed("\n  ```"),
        Prose("\nc"),
    ]


# --- Little is held back --------------------------------------------------------------------------

# The current line, a CR that may be half of a line end, and before it the end of a line of code.
HELD = re.compile(r"(\r\n|\n|\r)?[^\r\n]*\r?")


@given(soup, places)
@examples(600)
def test_at_most_the_current_line_is_held_back(text: str, where: list[int]) -> None:
    splitter = FenceSplitter()
    so_far = said = ""
    for chunk in cut(text, where):
        so_far += chunk
        said += "".join(raw(piece) for piece in splitter.push(chunk))
        assert so_far.startswith(said)
        assert HELD.fullmatch(so_far[len(said) :])


@given(soup, places)
@examples(600)
def test_text_that_flows_or_begins_a_plain_line_need_not_be_pushed(text: str, where: list[int]) -> None:
    splitter = FenceSplitter()
    pieces: list[Piece] = []
    for chunk in cut(text, where):
        said: str | None = None
        if chunk and not re.search(r"[\r\n]", chunk):
            said = chunk if splitter.flowing else splitter.begin(chunk)
        if said is None:
            pieces += splitter.push(chunk)
        else:
            pieces.append(Code(said, said) if splitter.in_code else Prose(said))
    assert joined([*pieces, *splitter.flush()]) == split(text)


@pytest.mark.parametrize(
    ("before", "text", "said"),
    [
        ("", "plain text", "plain text"),
        ("one\n", "two", "two"),
        ("", "# heading", "# heading"),
        ("", "#", None),  # a heading, or not
        ("", "- item", None),
        ("", "`code`", None),
        ("", "<div>", None),  # HTML: how it goes on matters
        ("half a line", " more", None),
        ("a carriage return\r", "more", None),
        ("<!--\n", "text", None),
        ("```py\n", "first", "first"),
        ("```py\nfirst\n", "second", "\nsecond"),
        ("```py\n", "`", None),
        ("~~~py\n", "~", None),
        ("  ```py\n", "dedented by nothing", "dedented by nothing"),
        ("- ```py\n", "outside", None),
        ("```\n", "not told apart", None),
    ],
)
def test_the_beginning_of_a_line_is_said_when_nothing_can_change_it(before: str, text: str, said: str | None) -> None:
    splitter = FenceSplitter()
    splitter.push(before)
    assert splitter.begin(text) == said
    assert splitter.flowing == (said is not None or before == "half a line")


Steps = list[tuple[str, list[Piece]]]

STEPS: dict[str, Steps] = {
    "prose is said at once": [
        ("Hello", [Prose("Hello")]),
        (", wor", [Prose(", wor")]),
        ("ld\n", [Prose("ld\n")]),
        ("\n", [Prose("\n")]),
    ],
    "so is a word in backticks": [("a `", [Prose("a `")]), ("b`", [Prose("b`")])],
    "a backtick at the start of a line is held": [("`", []), ("b", [Prose("`b")]), ("`", [Prose("`")])],
    "two are, too": [("``", []), (" b", [Prose("`` b")])],
    "white space is held": [("  ", []), (" a", [Prose("   a")])],
    "a list marker is held": [("-", []), (" ", []), ("a", [Prose("- a")])],
    "a mark that is none is said": [("-", []), ("a", [Prose("-a")])],
    "a number is held while it may be a marker": [("1", []), ("2", []), (".", []), ("5", [Prose("12.5")])],
    "ten digits are no marker": [("123456789", []), ("0", [Prose("1234567890")])],
    "a quote mark is held": [("> ", []), ("a", [Prose("> a")])],
    "a tag is said at once": [("<", [Prose("<")]), ("div>\n", [Prose("div>\n")])],
    "a heading is said at once": [("#", [Prose("#")]), (" a", [Prose(" a")])],
    "an opening fence is held to its line end": [
        ("```", []),
        ("py", []),
        (" x", []),
        ("\n", [FenceOpened(PY, 0, "```py x\n")]),
        ("a", [Code("a", "a")]),
        ("b", [Code("b", "b")]),
    ],
    "until a backtick makes it prose": [("```py", []), (" `", [Prose("```py `")]), ("x", [Prose("x")])],
    "a line end of code is held until more code comes": [
        ("```py\na\n", [FenceOpened(PY, 0, "```py\n"), Code("a", "a")]),
        ("b", [Code("\nb", "\nb")]),
        ("\n", []),
        ("```", []),
        ("\n", [FenceClosed("\n```"), Prose("\n")]),
    ],
    "what may be a closing fence is held": [
        ("```py\n", [FenceOpened(PY, 0, "```py\n")]),
        ("``", []),
        ("x", [Code("``x", "``x")]),
        ("\n```", []),
        ("  ", []),
        ("y", [Code("\n```  y", "\n```  y")]),
    ],
    "a gap in a closing fence makes it content": [
        ("~~~py\n~~", [FenceOpened(PY, 0, "~~~py\n")]),
        (" ", []),
        ("~", [Code("~~ ~", "~~ ~")]),
    ],
    "a closing fence at the end of the text closes": [
        ("```py\na\n```", [FenceOpened(PY, 0, "```py\n"), Code("a", "a")])
    ],
    "half a CRLF is held": [
        ("a\r", [Prose("a")]),
        ("", []),
        ("\nb", [Prose("\r\nb")]),
        ("\r", []),
        ("c", [Prose("\rc")]),
        ("\r\r", [Prose("\r")]),
    ],
    "a line outside its list item ends a fence": [
        ("- ```py\n", [FenceOpened(PY, 2, "- ```py\n")]),
        ("  a\n", [Code("a", "  a")]),
        ("b", [FenceClosed(""), Prose("\nb")]),
    ],
    "which may be the start of another": [
        ("- ```py\n  a\n", [FenceOpened(PY, 2, "- ```py\n"), Code("a", "  a")]),
        ("1", [FenceClosed(""), Prose("\n")]),
        (". ```", []),
        ("py\n", [FenceOpened(PY, 3, "1. ```py\n")]),
    ],
    "a fence without a language is said as it comes": [
        ("```\n", [Prose("```\n")]),
        ("a", [Prose("a")]),
        ("\n", [Prose("\n")]),
        ("```", []),
        ("\n", [Prose("```\n")]),
    ],
    "so is one in a quote": [
        ("> ```py\n", [Prose("> ```py\n")]),
        ("> a", [Prose("> a")]),
        ("\n> ```\n", [Prose("\n> ```\n")]),
    ],
}


@pytest.mark.parametrize("name", STEPS)
def test_what_is_certain_is_said_at_once(name: str) -> None:
    splitter = FenceSplitter()
    for pushed, expected in STEPS[name]:
        assert splitter.push(pushed) == expected, pushed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("``", [Prose("``")]),
        ("```py", [FenceOpened(PY, 0, "```py"), FenceClosed("")]),
        ("```py\n", [FenceOpened(PY, 0, "```py\n"), FenceClosed("")]),
        ("```py\na", [FenceOpened(PY, 0, "```py\n"), Code("a", "a"), FenceClosed("")]),
        ("```py\na\n", [FenceOpened(PY, 0, "```py\n"), Code("a", "a"), FenceClosed("\n")]),
        ("```py\na\n``", [FenceOpened(PY, 0, "```py\n"), Code("a\n``", "a\n``"), FenceClosed("")]),
        ("```py\na\n```", [FenceOpened(PY, 0, "```py\n"), Code("a", "a"), FenceClosed("\n```")]),
        ("```py\r", [FenceOpened(PY, 0, "```py\r"), FenceClosed("")]),
        ("a\r", [Prose("a\r")]),
    ],
)
def test_the_end_of_the_text_settles_what_was_held(text: str, expected: list[Piece]) -> None:
    assert split(text) == expected
    assert split(text, 1) == expected


def test_a_reader_is_told_whether_it_is_in_code_and_whether_text_flows() -> None:
    splitter = FenceSplitter()
    states = []
    for text in ("", "a", "\n", "```py", "\n", "b", "\r", "\n", "``", "`", "\n"):
        splitter.push(text)
        states.append((text, splitter.in_code, splitter.flowing))
    assert states == [
        ("", False, False),
        ("a", False, True),
        ("\n", False, False),
        ("```py", False, False),
        ("\n", True, False),
        ("b", True, True),
        ("\r", True, False),
        ("\n", True, False),
        ("``", True, False),
        ("`", True, False),
        ("\n", False, False),
    ]


# --- Info strings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "tag"),
    [
        ("", None),
        ("   ", None),
        ("\u00a0", None),
        ("\u00a0\u2003", None),
        ("py", CodeTag("py")),
        ("py title=x", CodeTag("py")),
        ("\u00a0py", CodeTag("py")),
        ("c++", CodeTag("c++")),
        ("{.python}", CodeTag("{.python}")),
        ("12:14:src/main.py", ReferenceTag(12, 14, "src/main.py")),
        ("12:14:src/my file.py", ReferenceTag(12, 14, "src/my file.py")),
        ("12:14: src/main.py ", ReferenceTag(12, 14, "src/main.py")),
        ("1:1:C:\\work\\a b.ts", ReferenceTag(1, 1, "C:\\work\\a b.ts")),
        ("1:2:a:b:c.py", ReferenceTag(1, 2, "a:b:c.py")),
        ("0:0:x", ReferenceTag(0, 0, "x")),
        ("14:12:x", ReferenceTag(14, 12, "x")),
        ("999999999:999999999:x", ReferenceTag(999_999_999, 999_999_999, "x")),
        ("1234567890:1:x", CodeTag("1234567890:1:x")),
        ("1:" + "9" * 5000 + ":x", CodeTag("1:" + "9" * 5000 + ":x")),
        ("12:14:", CodeTag("12:14:")),
        ("12:14: \u00a0", CodeTag("12:14:")),
        ("12:14", CodeTag("12:14")),
        ("12::x", CodeTag("12::x")),
        ("-1:2:x", CodeTag("-1:2:x")),
        ("١:٢:x", CodeTag("١:٢:x")),
    ],
)
def test_an_info_string_names_a_language_a_reference_or_nothing(info: str, tag: Tag | None) -> None:
    assert read_info(info) == tag


def test_a_fence_with_only_a_hard_space_is_prose() -> None:
    assert split("```\u00a0\nx\n```\n") == [Prose("```\u00a0\nx\n```\n")]


# --- Inline ---------------------------------------------------------------------------------------


def test_inline_keeps_fences_with_a_language_in_the_prose_and_splits_references() -> None:
    text = "a\n```py\nx\n```\nb\n```1:2:c.py\ny\n```\nd\n"
    for size in (1, 2, 1000):
        assert split(text, size, "inline") == [
            Prose("a\n```py\nx\n```\nb\n"),
            FenceOpened(ReferenceTag(1, 2, "c.py"), 0, "```1:2:c.py\n"),
            Code("y", "y"),
            FenceClosed("\n```"),
            Prose("\nd\n"),
        ]


def test_inline_does_not_find_a_reference_inside_a_fence_that_it_keeps() -> None:
    text = "````md\n```1:2:c.py\n```\n````\n- ```py\n  x\ny\n"
    assert split(text, fences="inline") == [Prose(text)]


@given(markdown)
@examples(500)
def test_inline_finds_the_same_references(text: str) -> None:
    references = [found for found in ours(split(text)) if isinstance(found[0], ReferenceTag)]
    assert ours(split(text, fences="inline")) == references


# --- Hostile text ---------------------------------------------------------------------------------

LONG = {
    "backticks": "`",
    "backticks in an info": "``` `",
    "tildes": "~",
    "dashes": "-",
    "items": "- ",
    "numbered items": "1. ",
    "quotes": "> ",
    "quoted items": "> - ",
    "spaces": " ",
    "tabs": "\t",
    "words": "a ",
    "digits": "1",
    "CRs": "\r",
    "CRLFs": "\r\n",
    "fences": "```py\n",
    "closed fences": "```py\n```\n",
    "fences in items": "- ```py\n  x\n",
    "quoted fences": "> ```py\n",
    "HTML": "<b>",
}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("size", [1, 1000_000], ids=["one by one", "whole"])
@pytest.mark.parametrize("unit", LONG.values(), ids=LONG)
@pytest.mark.parametrize("before", ["", "```py\n", "- ```py\n  "], ids=["prose", "code", "code in an item"])
def test_twice_the_text_is_twice_the_work(before: str, unit: str, size: int) -> None:
    def cost(count: int) -> int:
        return work(lambda: outputs(FenceSplitter(), chunks(before + unit * count + "x", size)))

    assert cost(800) < 2.2 * cost(400) + 200


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("unit", ["`", "~", "- ", "* ", "> ", " ", "\t", "a", "``` `", "<a b "])
@pytest.mark.parametrize("before", ["", "```py\n"], ids=["prose", "code"])
def test_a_long_line_that_comes_one_by_one_is_read_once(before: str, unit: str) -> None:
    def read(count: int) -> None:
        text = before + unit * count + "x"
        assert "".join(raw(piece) for piece in outputs(FenceSplitter(), text)) == text

    assert_linear(read)
