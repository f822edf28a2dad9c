"""How many clients may be connected, by the limit of open files."""

import resource

import pytest

from cursor_gateway.server import serving


class _Said:
    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def warning(self, event: str, **facts: object) -> None:
        self.lines.append({"event": event, **facts})


@pytest.mark.parametrize(
    ("max_runs", "connections", "is_said"),
    [(8, 4096 - 64 - 64, False), (496, 64, False), (497, 56, True), (3000, 16, True)],
)
def test_too_few_for_max_runs_are_reported_with_figures(
    monkeypatch: pytest.MonkeyPatch, max_runs: int, connections: int, is_said: bool
) -> None:
    said = _Said()
    monkeypatch.setattr(serving, "_log", said)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (4096, 4096))
    assert serving.most_connections(max_runs) == connections
    assert bool(said.lines) is is_said
    for line in said.lines:
        assert (line["files"], line["connections"]) == (4096, connections)
        assert str(line["needed"]).startswith(f"{64 + 8 * max_runs} ")
        assert "lower `max_runs` to 496" in str(line["remedy"])
