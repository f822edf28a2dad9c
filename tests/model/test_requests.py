"""The options of a run, which every API has."""

from cursor_gateway.dialects.documents.request import ChatRequest
from cursor_gateway.dialects.requests import CursorOptions
from cursor_gateway.model.requests import AgentRequest, RunOptionFields, RunOptions, run_options


def test_keyword_arguments_have_the_same_names() -> None:
    assert set(RunOptionFields.__annotations__) == set(RunOptions.__struct_fields__)


def test_requests_of_every_api_have_all_options() -> None:
    for request in (AgentRequest, ChatRequest, CursorOptions):
        assert issubclass(request, RunOptions)


def test_the_options_alone() -> None:
    asked = ChatRequest(message="Hi", mode="ask", needs=["gpu"])
    assert RunOptions(**run_options(asked)) == RunOptions(mode="ask", needs=["gpu"])
    assert AgentRequest(messages=[], **run_options(asked)).mode == "ask"


def test_only_a_question_without_attempt_and_name_may_be_asked_again() -> None:
    assert AgentRequest(messages=[], attempt="unknown").may_be_asked_again
    assert not AgentRequest(messages=[], attempt="unknown", question_id="q").may_be_asked_again
    assert not AgentRequest(messages=[]).may_be_asked_again
