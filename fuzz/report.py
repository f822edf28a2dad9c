"""What a run of the fuzzer has done in; the section of docs/reliability.md that tells it, out."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from fuzz.rows import Row
from fuzz.target import CORPUS, FOUND, HERE, Target

PART = HERE.parent / "docs" / "parts" / "fuzzing.md"  # chaos/report.py puts it into the page

_HEAD = """\
## Fuzzing

`make fuzz SECONDS=60` looks for inputs that break a law, with atheris and libFuzzer: coverage of the gateway's own code
leads, and the changes know JSON, lines of JSON and Markdown, so that most inputs get past the first parser. Each target
runs the laws of `tests/laws` and `tests/render` on whatever bytes it is given; an input may take 20 s and 1 GB at most.
`python -m fuzz --sweep` needs no atheris: it puts each nasty value (numbers beyond 64 bits, halves of characters, other
types) into every field of every seed. What breaks a law is made smaller and kept in `fuzz/found`; `fuzz/corpus` keeps
inputs that reach what others do not, made here and from our own scenarios. The tests run both, without atheris.

hypothesis tries every pure stage (the table in `tests/laws/test_fuzzed_stages.py` is complete, by what import-linter
holds to be pure). Its examples are the same in every run, and hypothesis keeps no database for those: a case that was
found is kept as a file in `fuzz/found`, or as an example of its test.
"""

_FOUND = """\
### What was found

| case | what was wrong | since then |
|---|---|---|
| `sdk/an_update_whose_type_is_a_list`, `sdk/a_message_whose_type_is_an_object` | a `TypeError` ended the run | \
counted as not recognized |
| `sdk/half_a_character_in_the_models_name` | the answer could not be encoded; ids, prompts and reasons likewise | it \
is U+FFFD |
| `lines/half_a_character_in_the_place_of_a_time` | a `UnicodeEncodeError` ended the run | counted as not \
recognized |
| `sdk/`, `acp/` and `lines/a_count_below_zero` | a client was told of less than no tokens | the tokens are estimated |
| `chat_request/parameters_nested_330_deep`, `openai_request/properties_nested_200_deep` | a tool was taken that no \
agent could be given: the SDK's way ended in a `RecursionError`, and MCP ends at 255 levels | refused with status 400 |
| `answer_request/a_result_nested_300_deep` | likewise for what a tool of the caller's gave | refused with status 400 |
| `documents/arguments_nested_800_deep` | the words of arguments were gathered by recursion | gathered without |
| `lines/a_querys_answer_nested_300_deep`, `acp/todos_nested_300_deep`, `acp/a_plan_nested_300_deep` | nested nearly \
as deeply as Python reads, it could be read and not be written again, one level deeper | left out, or counted as not \
recognized |
| `settings/a_list_nested_500_deep`, `settings/a_table_nested_990_deep` | a traceback in place of the sentence that \
names the file | the sentence |
"""


def part(rows: Sequence[Row], targets: Sequence[Target], seconds: int, today: date) -> str:
    holds = {target.name: target.holds for target in targets}
    files, found = _files(CORPUS), _files(FOUND)
    size = sum(path.stat().st_size for path in files)
    told = [
        f"On {today.day} {today:%B %Y}, {seconds} s for each of {len(rows)} targets: "
        f"{sum(row.runs for row in rows):,} runs, {sum(len(row.breaches) for row in rows)} broken laws. The corpus has "
        f"{len(files)} inputs ({size / 1000:.0f} kB); {len(found)} cases are kept that once broke a law.",
        "",
        "| target | what holds | runs | runs/s | edges | corpus | broken |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    told += [
        f"| `{row.target}` | {holds[row.target]} | {row.runs:,} | {row.rate:,.0f} | {row.edges:,} | "
        f"{len(_files(CORPUS / row.target))} | {', '.join(row.breaches) or 'none'} |"
        for row in rows
    ]
    return "\n".join([_HEAD, *told, "", _FOUND])


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
