"""Every scenario, in every dialect, is said as its expected file says it, byte for byte."""

import pytest

from tests.scenarios.golden import DIALECTS, Scenario, scenarios


@pytest.mark.parametrize("file", DIALECTS)
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_scenario_is_said_as_expected(scenario: Scenario, file: str) -> None:
    assert DIALECTS[file](scenario.lines, scenario.run).decode() == scenario.expected(file)
