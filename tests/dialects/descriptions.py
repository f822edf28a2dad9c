"""What the description of every dialect must contain."""

from importlib import import_module

import msgspec
from jsonschema import Draft202012Validator

from cursor_gateway.dialects.base import Dialect
from cursor_gateway.dialects.openapi import Description, Json, Sample, shared_schemas
from cursor_gateway.schema import openapi_components
from tests.dialects.runs import RUN, done, words

SAMPLE = Sample(RUN, [*words("It is a game."), done()])


def described(dialect: Dialect) -> Description:
    """The description, once it has been checked: each route is in it, and each example is valid."""
    found: Description = import_module(dialect.description).describe(SAMPLE)
    routes = {f"POST {route.path}" for route in dialect.routes}
    routes |= {f"{route.method} {route.path}" for route in dialect.computed}
    if dialect.answers is not None:
        routes |= {f"{method} {dialect.answers.path}" for method in ("GET", "DELETE")}
        routes |= {f"POST {dialect.answers.path}/cancel", f"GET {dialect.answers.items_path}"}
    routes |= {f"GET {dialect.named.path}"} if dialect.named is not None else set()
    assert routes <= set(found.operations)
    schemas = {**found.schemas, **shared_schemas(), **openapi_components()["schemas"]}
    for operation in found.operations.values():
        for place in [operation.get("requestBody", {}), *operation["responses"].values()]:
            for content in place.get("content", {}).values():
                _check_examples(content, schemas)
    return found


def _check_examples(content: Json, schemas: dict[str, Json]) -> None:
    validator = Draft202012Validator({**content.get("schema", {}), "components": {"schemas": schemas}})
    values = [example["value"] for example in content.get("examples", {}).values()]
    for value in [*values, *([content["example"]] if "example" in content else [])]:
        assert [error.message for error in validator.iter_errors(value)] == []


def request_examples(description: Description, route: str) -> list[bytes]:
    content = description.operations[route]["requestBody"]["content"]["application/json"]
    return [msgspec.json.encode(example["value"]) for example in content["examples"].values()]
