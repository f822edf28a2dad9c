"""Find ACP's name for a model that the CLI lists.

The CLI has `grok-4.6-high-fast`, ACP `grok-4.6[effort=high,fast=true]`; for `auto` ACP has `default[]`.
"""

import re
from collections.abc import Sequence

_PARAMETERS = re.compile(r"([^\[]*)\[(.*)\]")


def acp_model(wanted: str, available: Sequence[str]) -> str | None:
    """None if none of them matches."""
    if wanted in available:
        return wanted
    base = "default" if wanted in ("auto", "default") else wanted
    if (same := next((id for id in available if _base(id) == base), None)) is not None:
        return same
    fitting = [
        id for id in available if base.startswith(f"{_base(id)}-") and _has_parameters(id, base[len(_base(id)) + 1 :])
    ]
    return max(fitting, key=lambda model: len(_base(model)), default=None)


def _base(id: str) -> str:
    return id.partition("[")[0]


def _has_parameters(id: str, suffix: str) -> bool:
    """Whether each word of a suffix is a parameter: `high-fast` matches `[effort=high,fast=true]`."""
    found = _PARAMETERS.fullmatch(id)
    pairs = [pair.partition("=") for pair in found[2].split(",")] if found else []
    words = {name if value == "true" else value for name, _, value in pairs if value != "false"}
    return all(word in words for word in suffix.split("-"))
