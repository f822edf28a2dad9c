"""Estimate the tokens of a text, for what the agent does not report.

A tokenizer with its vocabulary takes 140 MB of memory and is exact for one model family only, so this counts the
pieces that byte-pair vocabularies agree on: short words, three digits, a few punctuation marks, a line end with its
indentation. Within 20 % of o200k on prose and code.
"""

import re
from functools import cache

_IDEOGRAPHS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# Each match is one token; a single space belongs to what follows it. The most frequent kinds come first.
_TOKEN = (
    r" ?[A-Za-z]{1,10}"
    r"| ?[^\w\s]{1,3}"
    r"| ?[0-9]{1,3}"
    r"|\s*\n\s*|\s{2,}"
    r"| ?_{1,3}"
    rf"| ?[{_IDEOGRAPHS}]"
    rf"| ?[^\W0-9A-Za-z_{_IDEOGRAPHS}]{{1,6}}"
)
_RUN_OF_IDEOGRAPHS = f"[{_IDEOGRAPHS}]{{4,}}"


@cache
def _token() -> re.Pattern[str]:
    """Compiled on first use: a plain answer needs no estimate, and compiling takes 3 ms."""
    return re.compile(_TOKEN)


def estimate_tokens(text: str) -> int:
    total = len(_token().split(text)) - 1  # faster than `findall`, which copies every token
    if text.isascii():
        return total
    # Four ideographs in a row make three tokens.
    return total - sum(len(run) // 4 for run in re.findall(_RUN_OF_IDEOGRAPHS, text))


_SHORT = 2048  # characters
_SLICES, _SLICE = 8, 64  # of a longer text


def estimate_tokens_by_sample(text: str) -> int:
    """Estimates a long text from a few slices: a tool's result may be megabytes, and must not delay the reader."""
    if len(text) <= _SHORT:
        return estimate_tokens(text)
    starts = [index * (len(text) - _SLICE) // (_SLICES - 1) for index in range(_SLICES)]
    sample = "".join([text[start : start + _SLICE] for start in starts])
    return estimate_tokens(sample) * len(text) // len(sample)
