"""Each example does what its first lines say. Those that need other packages are tested in tests/clients."""

import json
import re
from pathlib import Path

import pytest

from tests.examples.programs import EXAMPLES, run_example, run_notebook
from tests.gateways import RunningGateway
from tests.mcp_server.host import environment_of
from tests.server.conftest import invocations, standin, unique

ELSEWHERE = {
    "langchain_tools.py",
    "ai_sdk.mjs",
    "ai_sdk_chat.mjs",
    "ag_ui_chat.mjs",
    "dashboard",
}  # tests/clients/test_examples.py
HELPERS = {"README.md", "fake_chat_service.py", "recordings"}


def test_the_index_names_every_example_and_each_is_tested() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "__"))} - HELPERS
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert [number for number, _ in rows] == [str(number) for number in range(1, 12)]
    assert {name.removesuffix("/") for _, names in rows for name in re.findall("`(.*?)`", names)} == files
    tested = set(re.findall(r'"([a-z_]+\.(?:py|ipynb))"', Path(__file__).read_text()))
    assert files - ELSEWHERE <= tested


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.[pm]*[yts]")), ids=lambda file: file.name)
def test_it_fits_on_a_screen(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 70


def test_a_chat(gateway: RunningGateway, tmp_path: Path) -> None:
    mark = unique()
    printed = run_example("chat.py", folder=tmp_path, url=gateway.url, stdin=f"{mark} hello\n{mark} again\n\n")
    assert f"You said: {mark} hello" in printed
    first, second = invocations(gateway, mark)
    assert first["session"] == second["session"]


def test_a_bot(gateway: RunningGateway, tmp_path: Path) -> None:
    mark = unique()
    messages = [f"deploys: {mark} why?", f"deploys: {mark} and now?", f"lunch: {mark} where?"]
    printed = run_example("bot.py", *messages, folder=tmp_path, url=gateway.url)
    assert printed.count("  bot: You said: ") == 3
    first, second, third = invocations(gateway, mark)  # the first event came twice
    assert first["session"] == second["session"] != third["session"]


@pytest.mark.parametrize(
    ("answer", "status", "printed"),
    [
        (
            "The price is negative.\n\n```3:4:src/price.py\nprice = -1\n```\n",
            1,
            "::warning file=src/price.py,line=3,endLine=4::The price is negative.\n1 problem(s) found",
        ),
        ("I found no bugs.", 0, "0 problem(s) found"),
    ],
)
def test_a_review(gateway: RunningGateway, tmp_path: Path, answer: str, status: int, printed: str) -> None:
    diff = standin("say", answer)
    assert printed in run_example("review.py", folder=tmp_path, url=gateway.url, stdin=diff, status=status)
    whole = json.loads((tmp_path / "review.json").read_text())
    assert (whole["mode"], whole["status"]) == ("ask", "completed")


def test_a_review_that_fails(gateway: RunningGateway, tmp_path: Path) -> None:
    printed = run_example("review.py", folder=tmp_path, url=gateway.url, stdin=standin("fail-auth"), status=2)
    assert "::error::The review failed: " in printed


def test_a_notebook(demo: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURSOR_GATEWAY_URL", demo.url)
    source, answer, edits, commands, status, _ = run_notebook(EXAMPLES / "notebook.ipynb")
    assert source == "'demo'"
    assert "JWT" in answer
    assert "('create', 'bookshelf/auth.py')" in edits
    assert "('python -m pytest -q', 0)" in commands
    assert status == "'completed'"


def test_a_batch(demo: RunningGateway, tmp_path: Path) -> None:
    mark = unique()
    (tmp_path / "prompts.txt").write_text("".join(f"hello {mark} {number}\n" for number in range(12)))
    printed = run_example("batch.py", "prompts.txt", folder=tmp_path, url=demo.url)
    assert f"[{'#' * 40}] 12/12, 0 failed" in printed
    answers = answers_in(tmp_path)
    assert len(answers) == 12
    run_example("batch.py", "prompts.txt", folder=tmp_path, url=demo.url)
    assert answers_in(tmp_path) == answers  # the same runs


def answers_in(folder: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    return {line["prompt"]: line["id"] for line in lines if line["answer"]}


def test_a_replay(tmp_path: Path) -> None:
    assert "OK" in run_example("replay_test.py", folder=tmp_path, environment={"HOME": str(tmp_path)})


def test_two_people(gateway: RunningGateway, tmp_path: Path) -> None:
    printed = run_example("two_people.py", standin("question"), folder=tmp_path, url=gateway.url)
    assert "Ann is asked: Which file is meant? Ann chooses notes.txt." in printed
    assert "Bob is asked: Which file is meant? Bob chooses other.txt." in printed
    (chosen,) = set(re.findall(r"sees that (\S+) was chosen", printed))
    assert printed.count(f"sees that {chosen} was chosen") == 2
    assert printed.count(f"reads: You chose {chosen}.") == 2


def test_an_mcp_host(gateway: RunningGateway, tmp_path: Path) -> None:
    printed = run_example(
        "mcp_host.py", standin("tools"), folder=gateway.workspace, environment=environment_of(gateway)
    )
    assert "Tools: ask, run, status, answer, cancel" in printed
    assert "Ran `pytest -q` (exit status 0)" in printed
    assert f"create: {gateway.workspace}/src/tax.py" in printed
