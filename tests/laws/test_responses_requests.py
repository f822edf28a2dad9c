"""Any body at all is a request for a response, or is refused with the field that is to blame."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.base import StartRun
from cursor_gateway.dialects.responses.dialect import responses_dialect
from cursor_gateway.dialects.responses.request import KeptRequest, ResponsesBody
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.requests import NOT_STORED
from tests.laws.strategies import examples

DIALECT = responses_dialect(5, lambda: 0)
ITEM_TYPES = [
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "compaction",
    "compaction_trigger",
    "additional_tools",
    "tool_search_output",
    "item_reference",
    "new",
]
PART_TYPES = ["input_text", "output_text", "input_image", "input_file", "refusal", "new"]
FIELDS = [
    "id",
    "role",
    "content",
    "call_id",
    "name",
    "namespace",
    "arguments",
    "input",
    "output",
    "tools",
    "encrypted_content",
    "phase",
]
ROLES = ["user", "assistant", "system", "developer", "tool"]

scalars: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.text(max_size=3))
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(PART_TYPES)},
    optional=dict.fromkeys(("text", "image_url", "file_id", "file_data", "filename", "refusal"), values),
)
tools: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["function", "custom", "web_search", "new"])},
        optional={"name": st.text(max_size=3) | values, "parameters": values, "format": values, "description": values},
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("namespace"), "name": st.text(max_size=3), "tools": st.lists(inner, max_size=2)}
    ),
    max_leaves=3,
)
ids = st.text("ab_", max_size=4) | st.just(f"msg_{32 * '0'}_0_1")
good_items = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(ROLES[:4]), "content": st.text(max_size=3) | st.lists(parts, max_size=2)},
        optional={"type": st.just("message"), "id": ids, "phase": st.just("commentary")},
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": ids, "name": ids, "arguments": st.text(max_size=3)},
        optional={"id": ids, "namespace": ids},
    ),
    st.fixed_dictionaries({"type": st.just("custom_tool_call"), "call_id": ids, "name": ids, "input": ids}),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["function_call_output", "custom_tool_call_output"]),
            "call_id": ids,
            "output": st.text(max_size=3) | st.lists(parts, max_size=2),
        }
    ),
    st.fixed_dictionaries({"type": st.sampled_from(ITEM_TYPES[5:])}, optional={"tools": st.lists(tools, max_size=2)}),
)
bad_items = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(ITEM_TYPES) | values,
        **dict.fromkeys(FIELDS, values),
        "content": st.lists(parts | values, max_size=2),
        "tools": st.lists(tools | values, max_size=2),
    },
)
bodies: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda sent, good, bad: {"input": sent, **good, **bad},
    st.one_of(
        st.text(max_size=3),
        st.lists(good_items, max_size=5),
        st.lists(good_items, max_size=5),
        st.lists(good_items | bad_items | values, max_size=4),
    ),
    st.fixed_dictionaries(
        {"model": st.just("auto")},
        optional={
            "tools": st.lists(tools, max_size=3),
            "tool_choice": st.sampled_from(["auto", "none", {"type": "allowed_tools", "tools": []}, {"type": "mcp"}]),
            "stream": st.booleans(),
            "store": st.booleans(),
            "metadata": st.dictionaries(st.text(max_size=2), values, max_size=2),
        },
    ),
    st.dictionaries(st.sampled_from(ResponsesBody.__struct_fields__), values, max_size=1),
)
headers = st.fixed_dictionaries(
    {}, optional={"originator": st.just("codex_exec"), "x-codex-turn-metadata": values.map(json.dumps)}
)


@examples(500)
@given(bodies, headers)
def test_any_body_is_read_or_refused(body: dict[str, Any], sent: dict[str, str]) -> None:
    (route,) = DIALECT.routes
    try:
        asked = route.read(json.dumps(body).encode(), sent)
    except InvalidRequest:
        return
    assert isinstance(asked, StartRun)
    assert asked.messages
    names = [tool.name for tool in asked.offer.tools] if asked.offer is not None else []
    assert len(set(names)) == len(names)
    for image in asked.images:
        assert hasattr(asked.messages[image.message], "images")
    assert (asked.kept == NOT_STORED) == (body.get("store") is False)
    if asked.kept != NOT_STORED:
        kept = msgspec.json.decode(asked.kept, type=KeptRequest)
        assert msgspec.json.encode(kept) == asked.kept


@examples(200)
@given(bodies, st.sampled_from([route for route in DIALECT.computed if route.method == "POST"]))
def test_any_body_is_computed_or_refused(body: dict[str, Any], route: Any) -> None:
    try:
        found = json.loads(route.read(json.dumps(body).encode(), {}))
    except InvalidRequest:
        return
    assert found["object"].startswith("response.")
