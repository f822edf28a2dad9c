"""`make help` lists every target."""

import re
from pathlib import Path

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")


def test_every_target_has_its_line_of_help() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    helped = re.findall(r"^([a-z-]*):.*## .*$", MAKEFILE, re.MULTILINE)  # as the target `help` finds them
    assert sorted(helped) == sorted(phony[1].split())
    assert set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE)) == set(helped)
