"""`docs/security.md` and the tests that it names: neither says what the other does not."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def named_in(file: Path) -> frozenset[str]:
    found = (
        node
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def rules() -> list[tuple[str, str]]:
    """The rows of the tables of rules: what holds, and what proves it."""
    chapter = PAGE.partition("\n## Rules\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in chapter.splitlines() if line.startswith("| ")]
    return [(rule, proof) for rule, proof in rows if rule != "rule"]


def test_every_proof_is_a_test() -> None:
    named = PROOF.findall(PAGE)
    assert len(named) > 50
    assert [f"{file}::{name}" for file, name in named if name not in named_in(ROOT / file)] == []


@pytest.mark.parametrize(("rule", "proof"), rules(), ids=[rule[:40] for rule, _ in rules()])
def test_every_rule_has_a_proof_and_is_a_sentence(rule: str, proof: str) -> None:
    assert PROOF.findall(proof)
    assert not PROOF.sub("", proof).strip()  # nothing that only looks like one
    assert rule.endswith(".")


def test_every_attack_is_documented() -> None:
    named = {(file, name) for file, name in PROOF.findall(PAGE)}
    ours = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    there = {(str(path.relative_to(ROOT)), name) for path in ours for name in named_in(path)}
    assert len(there) > 40
    assert sorted(there - named) == []
