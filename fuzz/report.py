"""The results of a fuzzing run in; the section of docs/reliability.md about it out."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from fuzz.rows import Row
from fuzz.target import CORPUS, FOUND, HERE, Target

PART = HERE.parent / "docs" / "parts" / "fuzzing.md"  # chaos/report.py puts it into the page

_HEAD = """\
## Fuzzing

`make fuzz SECONDS=60` searches for inputs that break a law, with atheris and libFuzzer. It is guided by the coverage
of the gateway's own code, and its mutations know JSON, lines of JSON and Markdown, so most inputs get past the first
parser. Each target checks the laws of `tests/laws` and `tests/render` for arbitrary bytes; an input may take at most
20 s and 1 GB. `python -m fuzz --sweep` works without atheris: it puts each difficult value (numbers beyond 64 bits,
lone surrogates, other types) into every field of every seed. Inputs that break a law are minimized and kept in
`fuzz/found`; `fuzz/corpus` has inputs that reach new code, generated here and from our own scenarios. The tests run
both, without atheris.

Hypothesis tests every pure stage (the table in `tests/laws/test_fuzzed_stages.py` covers everything that
import-linter declares pure). Its examples are the same in every run, so it keeps no database: a case that was found
is kept as a file in `fuzz/found`, or as an example of its test.
"""

_FOUND = """\
### Findings

| case | problem | now |
|---|---|---|
| `sdk/an_update_whose_type_is_a_list`, `sdk/a_message_whose_type_is_an_object` | a `TypeError` ended the run | \
counted as unrecognized |
| `sdk/half_a_character_in_the_models_name` | the answer could not be encoded; the same for ids, prompts and reasons \
| replaced by U+FFFD |
| `lines/half_a_character_in_the_place_of_a_time` | a `UnicodeEncodeError` ended the run | counted as unrecognized |
| `sdk/`, `acp/` and `lines/a_count_below_zero` | a negative number of tokens was reported | the tokens are estimated |
| `chat_request/parameters_nested_330_deep`, `openai_request/properties_nested_200_deep` | a tool was accepted that \
could not be passed to an agent: `RecursionError` with the SDK, and a limit of 255 levels in MCP | rejected with 400 |
| `answer_request/a_result_nested_300_deep` | the same for the result of a caller's tool | rejected with 400 |
| `documents/arguments_nested_800_deep` | the words of arguments were collected by recursion | collected iteratively |
| `lines/a_querys_answer_nested_300_deep`, `acp/todos_nested_300_deep`, `acp/a_plan_nested_300_deep` | nested almost \
as deeply as Python can parse, they could be parsed but not encoded one level deeper | omitted, or counted as \
unrecognized |
| `settings/a_list_nested_500_deep`, `settings/a_table_nested_990_deep` | a traceback instead of an error that names \
the file | the error |
"""


def part(rows: Sequence[Row], targets: Sequence[Target], seconds: int, today: date) -> str:
    holds = {target.name: target.holds for target in targets}
    files, found = _files(CORPUS), _files(FOUND)
    size = sum(path.stat().st_size for path in files)
    result = [
        f"On {today.day} {today:%B %Y}, {seconds} s for each of {len(rows)} targets: "
        f"{sum(row.runs for row in rows):,} runs, {sum(len(row.breaches) for row in rows)} broken laws. The corpus has "
        f"{len(files)} inputs ({size / 1000:.0f} kB); {len(found)} former failures are kept as regression tests.",
        "",
        "| target | law | runs | runs/s | edges | corpus | broken |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    result += [
        f"| `{row.target}` | {holds[row.target]} | {row.runs:,} | {row.rate:,.0f} | {row.edges:,} | "
        f"{len(_files(CORPUS / row.target))} | {', '.join(row.breaches) or 'none'} |"
        for row in rows
    ]
    return "\n".join([_HEAD, *result, "", _FOUND])


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
