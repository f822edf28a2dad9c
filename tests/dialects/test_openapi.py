"""The parts of an OpenAPI document: parameters, replies, errors, and schemas made from types."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.chat.dialect import ChatReply
from cursor_gateway.dialects.requests import CursorOptions
from cursor_gateway.errors import AgentCrashed, AgentMissing, GatewayError, TooManyRuns, WebSocketRefused
from tests.dialects.descriptions import SAMPLE


class _Colour(Struct):
    """A colour."""

    name: Annotated[str, Meta(description="The name.")] = "red"


class Paint(Struct):
    """A paint."""

    colour: _Colour
    litres: Annotated[int, Meta(description="How much.")] = 1
    note: str | UnsetType = UNSET


def _operation(**changed: Any) -> dict[str, Any]:
    return api.operation("paint", "Paint", "Paints.", replies=api.ok("Painted.", {}), **changed)


def test_every_operation_has_the_errors_of_all() -> None:
    responses = _operation()["responses"]
    assert {"200", "400", "401", "403", "405", "408", "431", "500", "503"} == set(responses)
    assert "WWW-Authenticate" in responses["401"]["headers"]
    assert "Allow" in responses["405"]["headers"]


def test_an_open_operation_needs_no_key() -> None:
    found = _operation(is_open=True)
    assert found["security"] == []
    assert found["parameters"] == []
    assert "401" not in found["responses"]


def test_errors_are_grouped_by_status() -> None:
    found = _operation(errors=[TooManyRuns, AgentMissing])["responses"]
    assert list(found["429"]["content"]["application/json"]["examples"]) == ["too_many_runs"]
    assert "agent_missing" in found["503"]["content"]["application/json"]["examples"]
    assert "Retry-After" in found["429"]["headers"]


def test_the_error_of_a_run_has_the_runs_headers_and_form() -> None:
    plain = _operation(errors=[AgentCrashed])["responses"]["502"]
    same = _operation(errors=[AgentCrashed], failed_run="ErrorReply")["responses"]["502"]
    other = _operation(errors=[AgentCrashed], failed_run="Failed")["responses"]["502"]
    assert "X-Chat-Id" not in plain["headers"]
    assert "X-Chat-Id" in same["headers"]
    assert same["content"]["application/json"]["schema"] == api.ref("ErrorReply")
    assert other["content"]["application/json"]["schema"] == {"anyOf": [api.ref("Failed"), api.ref("ErrorReply")]}


def test_run_errors_are_those_without_subclasses() -> None:
    found = api.run_errors()
    assert AgentCrashed in found
    assert GatewayError not in found
    assert WebSocketRefused not in found
    assert api.run_errors(AgentCrashed) == {AgentCrashed}


def test_every_error_has_a_meaning_or_its_code() -> None:
    found = _operation(errors=[AgentCrashed])["responses"]["502"]["description"]
    assert found == "`agent_crashed`: The agent ended without a result."

    class Rusted(AgentCrashed):
        code, retry_after = "agent_rusted", None

    found = _operation(errors=[Rusted])["responses"]["502"]["description"]
    assert found == "`agent_rusted`: Agent rusted."


def test_bodies_parameters_and_streams() -> None:
    body = api.json_body("Paint", red=("Red", {"colour": {"name": "red"}}))
    assert body["content"]["application/json"]["examples"]["red"]["summary"] == "Red"
    found = _operation(body=body, parameters=[api.path_id("Its id.", "p1"), api.page_size(3), api.query("q", "Words.")])
    assert found["requestBody"] == body
    assert [parameter.get("name") for parameter in found["parameters"]] == ["id", "limit", "q", None]
    assert api.json_content(api.OBJECT, {}) == {"application/json": {"schema": api.OBJECT, "example": {}}}
    assert api.json_ok("A.", "B", {}) == api.ok("A.", api.json_content(api.ref("B"), {}))
    event = api.sse_event(["Paint"], event=api.TEXT)
    assert event["required"] == ["event", "data"]
    assert api.stream("Paints.", event, "…")["x-itemSchema"]["description"] == "Paints."


def test_options_are_headers_too() -> None:
    names = [parameter["name"] for parameter in api.cursor_headers(CursorOptions)]
    assert "X-Cursor-When-Client-Leaves" in names
    assert len(names) == len(CursorOptions.__struct_fields__)


def test_examples_come_from_the_encoders() -> None:
    reply = ChatReply(agent_tools="reasoning")
    whole = api.whole_example(SAMPLE, reply)
    assert whole["choices"][0]["message"]["content"] == "It is a game."
    assert api.stream_example(SAMPLE, reply).endswith("data: [DONE]\n\n")


def test_the_schema_of_a_request() -> None:
    found = api.read_schemas(
        [Paint],
        lambda name: f"Wall{name}",
        {
            "WallPaint": {"minProperties": 2},
            "WallPaint.litres": {"enum": [1, 2]},
            "WallPaint.note": {**api.NAME, "description": "More."},
        },
    )
    assert set(found) == {"WallPaint", "WallColour"}
    assert found["WallPaint"]["description"] == "A paint."
    assert found["WallPaint"]["minProperties"] == 2
    assert found["WallPaint"]["properties"]["litres"] == {"enum": [1, 2], "default": 1, "description": "How much."}
    assert found["WallPaint"]["properties"]["note"] == {**api.NAME, "description": "More."}
    assert found["WallPaint"]["properties"]["colour"] == {**api.ref("WallColour"), "description": "A colour."}
    assert found["WallColour"]["properties"]["name"]["description"] == "The name."


def test_what_is_no_longer_referred_to_is_left_out() -> None:
    assert set(api.read_schemas([Paint], exact={"Paint.colour": api.TEXT})) == {"Paint"}
    assert set(api.read_schemas([Paint, Paint], exact={"Paint.colour": api.ref("Elsewhere")})) == {"Paint"}


def test_a_field_without_a_sentence_has_that_of_its_value() -> None:
    class Wall(Struct):
        paint: Paint | None
        kind: Literal["wall"]
        door: None
        height: int

    found = api.read_schemas([Wall])["Wall"]["properties"]
    assert {name: field.get("description") for name, field in found.items()} == {
        "paint": "A paint.",
        "kind": "Always `wall`.",
        "door": "Always null.",
        "height": None,
    }


def test_a_reply_always_has_the_fields_with_defaults() -> None:
    found = api.written_schemas([Paint])
    assert found["Paint"]["required"] == ["colour", "litres"]
    assert "default" not in found["Colour"]["properties"]["name"]


def test_a_schema_that_no_type_has() -> None:
    fields: api.Fields = {"a": (api.TEXT, "A."), "b": (api.TEXT, "B.")}
    assert api.record("Pair", "Two.", fields, ["a"])["Pair"]["required"] == ["a"]
    found = api.record("Pair", "Two.", fields)["Pair"]
    assert found["required"] == ["a", "b"]
    api.ignore(found, {"b": "No use.", "c": "No use.", "c.d": "No use."})
    assert {name: field["description"] for name, field in found["properties"].items()} == {
        "a": "A.",
        "b": "Ignored. No use.",
        "c": "Ignored. No use.",
    }
    assert api.list_of("Pair")["items"] == api.ref("Pair")


def test_shared_schemas() -> None:
    assert set(api.shared_schemas()) == {"CursorOptions", "ErrorReply", "Error"}
