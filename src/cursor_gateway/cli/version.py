"""The version of this program, with the commit that it was built from."""

from importlib import resources
from importlib.metadata import version

_SHORT = 12  # characters of a commit, as people write it


def full_version() -> str:
    commit = _commit()
    return f"{version('cursor-gateway')} ({commit})" if commit else version("cursor-gateway")


def _commit() -> str:
    """`hatch_build.py` writes the file. It is missing where the program runs from a checkout."""
    try:
        commit, *state = resources.files("cursor_gateway").joinpath("commit.txt").read_text().split()
    except FileNotFoundError:
        return ""
    return " ".join((commit[:_SHORT], *state))
