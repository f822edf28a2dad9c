"""What an agent took that was started several times."""

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.agent_events import RunFailed, RunFinished, TokenCounts
from cursor_gateway.runs.usage_total import UsageTotal

COUNTS = TokenCounts(prompt=10, completion=2, cached=4)


def test_turns_add_up() -> None:
    spending = UsageTotal()
    for _ in range(2):
        spending.add(RunFinished(usage=COUNTS, duration_ms=5))
    total = spending.total(RunFinished(usage=COUNTS, duration_ms=5, text_differs=True))
    assert total == RunFinished(
        usage=TokenCounts(prompt=20, completion=4, cached=8), last_usage=COUNTS, duration_ms=10, text_differs=True
    )


def test_what_was_not_reported_makes_the_whole_unknown() -> None:
    spending = UsageTotal()
    spending.add(RunFinished(usage=None, duration_ms=5))
    spending.add(RunFinished(usage=COUNTS, duration_ms=None))
    assert spending.total(RunFinished(usage=COUNTS)) == RunFinished(usage=None, last_usage=COUNTS, duration_ms=5)
    broken_off = UsageTotal()
    broken_off.cut()
    failed = RunFailed(failure=AgentCrashed().failure(), usage=COUNTS)
    broken_off.add(failed)
    assert broken_off.total(failed).usage is None
