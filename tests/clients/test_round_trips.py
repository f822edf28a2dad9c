"""Whatever client asks: its tool runs on its own side, once for each call, and the same agent goes on from there."""

from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

import pytest

from cursor_gateway.sources.processes import members
from tests.clients.programs import Drivers, Json, Project, at_once, call, program, project_in, say
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import eventually, invocations, standin, unique
from tests.server.test_leaks import ended_agents

WHOLE_AND_STREAM = ("whole", "stream")
WAYS = [
    *(("openai_chat", way) for way in WHOLE_AND_STREAM),
    *(("langchain_agent", way) for way in (*WHOLE_AND_STREAM, "agent")),
    *(("pydantic_agent", way) for way in WHOLE_AND_STREAM),
    *(("ai_sdk.mjs", way) for way in WHOLE_AND_STREAM),
    *(("openai_responses", way) for way in WHOLE_AND_STREAM),
    *(("openai_agent", way) for way in WHOLE_AND_STREAM),
    *(("pydantic_agent", f"{way} responses") for way in WHOLE_AND_STREAM),
    *(("ai_sdk.mjs", f"{way} responses") for way in WHOLE_AND_STREAM),
    *(("anthropic_messages", way) for way in WHOLE_AND_STREAM),
    *(("anthropic_sdk.mjs", way) for way in WHOLE_AND_STREAM),
    *(("langchain_agent", f"{way} messages") for way in WHOLE_AND_STREAM),
    *(("pydantic_agent", f"{way} messages") for way in WHOLE_AND_STREAM),
    *(("ai_sdk.mjs", f"{way} messages") for way in WHOLE_AND_STREAM),
]


def each(ways: Iterable[tuple[str, str]]) -> pytest.MarkDecorator:
    """Each driver is loaded in one worker only."""
    marked = [pytest.param(*way, marks=pytest.mark.xdist_group(way[0])) for way in ways]
    return pytest.mark.parametrize(("driver", "way"), marked)


def weather_in(*cities: str) -> Json:
    """Nobody could guess it."""
    return {city: f"weather-{uuid4().hex}" for city in cities}


def assert_one_agent_that_has_ended(gateway: RunningGateway, mark: str) -> None:
    (started,) = invocations(gateway, mark)
    eventually(lambda: not members(started["pgid"]))


@each(WAYS)
def test_a_tool_runs_once_and_the_answer_has_its_result(
    gateway: RunningGateway, drivers: Drivers, project: Project, driver: str, way: str
) -> None:
    mark, weather = unique(), weather_in("Paris")
    prompt = program([say("I look. "), call("get_weather", city="Paris"), say("It is $1.")], mark)
    driven = drivers.drive(driver, way, gateway, project, prompt, weather=weather)
    assert driven.cities == ["Paris"]
    assert f"It is {weather['Paris']}." in driven.answer
    assert_one_agent_that_has_ended(gateway, mark)


@each(WAYS)
def test_calls_at_once_run_once_each(
    gateway: RunningGateway, drivers: Drivers, project: Project, driver: str, way: str
) -> None:
    mark, weather = unique(), weather_in("Oslo", "Rome", "Lima")
    calls = at_once(*(call("get_weather", city=city) for city in weather))
    driven = drivers.drive(driver, way, gateway, project, program([calls, say("$1, $2, $3")], mark), weather=weather)
    assert sorted(driven.cities) == sorted(weather)
    assert driven.answer.endswith(", ".join(weather.values()))  # each with the result of its own
    assert_one_agent_that_has_ended(gateway, mark)


@each((driver, way) for driver, way in WAYS if not way.startswith("whole"))  # whole replies have no more to go wrong
def test_ten_calls_one_after_another(
    gateway: RunningGateway, drivers: Drivers, project: Project, driver: str, way: str
) -> None:
    mark, weather = unique(), weather_in(*(f"City {number}" for number in range(1, 11)))
    steps = [call("get_weather", city=city) for city in weather]
    everything = say(" ".join(f"${number}" for number in range(1, 11)))
    driven = drivers.drive(driver, way, gateway, project, program([*steps, everything], mark), weather=weather)
    assert driven.cities == list(weather)
    assert driven.answer.endswith(" ".join(weather.values()))
    assert_one_agent_that_has_ended(gateway, mark)


@pytest.mark.xdist_group("openai_sdk.mjs")
def test_openais_sdk_cancels_a_response(gateway: RunningGateway, drivers: Drivers, project: Project) -> None:
    """It sends no body, and so no content type."""
    mark = unique()
    driven = drivers.drive("openai_sdk.mjs", "cancel", gateway, project, f"{mark}\n{standin('hang-mid')}", weather={})
    assert driven.answer == "cancelled"
    assert_one_agent_that_has_ended(gateway, mark)


@pytest.mark.xdist_group("ai_sdk.mjs")
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_conversation_of_the_ai_sdk_stays_in_the_agents_session(
    gateway: RunningGateway, drivers: Drivers, project: Project, api: str
) -> None:
    """Over the Responses API, it refers to earlier answers by their ids."""
    mark, weather = unique(), weather_in("Paris")
    prompt = program([say("I look. "), call("get_weather", city="Paris"), say("It is $1.")], mark)
    driven = drivers.drive("ai_sdk.mjs", f"turns {api}", gateway, project, prompt, weather=weather)
    assert f"{mark} again" in driven.answer
    _, second = invocations(gateway, mark)
    assert "--resume" in second["argv"]


@pytest.mark.xdist_group("pydantic_agent")
@pytest.mark.parametrize("scenario", ["thinking", "tools"])
def test_a_conversation_of_pydantic_ai_stays_in_the_agents_session(
    gateway: RunningGateway, drivers: Drivers, project: Project, scenario: str
) -> None:
    """It sends reasoning back as text, and an answer in several messages without their ids."""
    mark = unique()
    prompt = f"{mark}\n{standin(scenario)}"
    driven = drivers.drive("pydantic_agent", "turns responses", gateway, project, prompt, weather={})
    assert f"{mark} again" in driven.answer
    _, second = invocations(gateway, mark)
    assert "--resume" in second["argv"]


def assert_answers_with_a_value(gateway: RunningGateway, drivers: Drivers, project: Project) -> None:
    """Pydantic AI demands calls, and takes the last one's arguments for the answer: nobody replies to that call."""
    weather = weather_in("Paris")
    steps = [call("get_weather", city="Paris"), call("final_result", city="Paris", weather="$1")]
    driven = drivers.drive("pydantic_agent", "structured", gateway, project, program(steps, unique()), weather=weather)
    assert driven.cities == ["Paris"]
    assert driven.answer == f'{{"city":"Paris","weather":"{weather["Paris"]}"}}'


@pytest.mark.xdist_group("pydantic_agent")
def test_an_answer_that_is_a_value(gateway: RunningGateway, drivers: Drivers, project: Project) -> None:
    assert_answers_with_a_value(gateway, drivers, project)


@pytest.mark.xdist_group("pydantic_agent")
def test_calls_that_nobody_answers_do_not_use_up_the_gateway(tmp_path: Path, drivers: Drivers) -> None:
    with ended_agents(tmp_path / "home") as home, running_gateway(home, settings={"max_runs": "1"}) as gateway:
        for number in ("first", "second", "third"):
            assert_answers_with_a_value(gateway, drivers, project_in(tmp_path / number))
