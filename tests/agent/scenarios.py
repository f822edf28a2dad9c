"""A request in; what plays it out."""

from tests.agent import actions, program, talk, troubles
from tests.agent.failures import Failure
from tests.agent.turn import SCENARIOS, Request, Scenario

__all__ = ["SCENARIOS", "actions", "program", "scenario_of", "talk", "troubles"]  # imported, the modules fill the table


def scenario_of(request: Request) -> Scenario:
    try:
        return SCENARIOS[request.name]
    except KeyError:
        raise Failure(f"standin: there is no scenario {request.name!r}", 64) from None
