"""Every pure stage has a property that is tried on generated input: here the table, and those with no better place."""

import configparser
import json
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from posixpath import join, normpath
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, is_hypothesis_test
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from cursor_gateway.dialects.ag_ui import ag_ui_dialect
from cursor_gateway.dialects.ai_sdk import ai_sdk_dialect
from cursor_gateway.dialects.base import Dialect
from cursor_gateway.dialects.documents.request import answers_of, offer_of, read_answer, read_chat_request, results_of
from cursor_gateway.dialects.messages.dialect import folder_of, session_of
from cursor_gateway.dialects.messages.shapes import answer_id as message_answer_id
from cursor_gateway.dialects.messages.shapes import encode_error as encode_anthropic_error
from cursor_gateway.dialects.messages.shapes import message_id, stream_error
from cursor_gateway.dialects.requests import CursorOptions, with_headers
from cursor_gateway.dialects.responses.conversation import pack, read_tools, unpack
from cursor_gateway.dialects.responses.dialect import list_items, starting_after
from cursor_gateway.dialects.responses.encoder import citations
from cursor_gateway.dialects.responses.request import read_codex
from cursor_gateway.dialects.responses.shapes import (
    ItemId,
    answer_id,
    item_id,
    read_item_id,
    response_error,
    response_id,
)
from cursor_gateway.errors import Failure, GatewayError, InvalidRequest, NotFound
from cursor_gateway.model import caller_tools
from cursor_gateway.model.agent_events import Action, Outcome
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    Document,
    PlanMetadata,
    document_type,
    is_tool_use,
    make_document,
)
from cursor_gateway.model.messages import Instructions
from cursor_gateway.prompting.replies import answers_message, check_answers, plan_message
from cursor_gateway.sources.acp.calls import call_of, ended, is_allowed, learn, option_for
from cursor_gateway.sources.acp.calls import started as call_started
from cursor_gateway.sources.acp.models import Choice, candidates, nearest_variants, settings_for
from cursor_gateway.sources.acp.rpc import error_text, line_of, message_of
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor.command import CommandOptions, Program, command_for
from cursor_gateway.sources.cursor.failures import failure_of, known_failure, nearest_names, plain, reported_failure
from cursor_gateway.sources.cursor.models import is_known, parse_models
from cursor_gateway.sources.cursor.permissions import needed, wrong_rules
from cursor_gateway.sources.cursor.tools import read_result
from cursor_gateway.sources.sdk.decoder import plain as plain_update
from cursor_gateway.sources.sdk.decoder import protocol_arguments, protocol_result
from cursor_gateway.sources.sdk.failures import Reported, error_of, run_failure
from cursor_gateway.sources.sdk.failures import failure_of as sdk_failure_of
from cursor_gateway.sources.sdk.requests import selection
from cursor_gateway.stages.caller_runs import LoopGuard
from cursor_gateway.stages.summary import one_line
from cursor_gateway.stages.tool_documents import answered, content_of, metadata_of, started
from cursor_gateway.stages.usage import Turns
from cursor_gateway.wire.payload import Fields, clamped
from cursor_gateway.wire.sse import SseDecoder
from cursor_gateway.wire.surrogates import repair_json
from tests.laws.strategies import actions, examples, texts
from tests.render.test_html_safety import any_json, metadata, nasty

_PROJECT = Path(__file__).parents[2]
_PACKAGE = _PROJECT / "src" / "cursor_gateway"
_STAGES = ("wire", "model", "markdown", "stages", "prompting", "dialects", "sources")
_TYPES_ALONE = {
    *(f"model.{name}" for name in ("agent_trace", "answers", "changes", "health", "history", "requests")),
    *(f"dialects.{name}" for name in ("base", "errors", "openapi")),
    *(f"dialects.{name}.openapi" for name in ("chat", "documents", "messages", "responses")),
}  # they have no input from outside

_LAWS = "laws.test_laws"
_HERE = "laws.test_fuzzed_stages"
_UI = ("ag_ui", "ai_sdk")

# Modules, and tests that try them on generated input.
PROPERTIES: list[tuple[str, str]] = [
    ("wire.json_body", "wire.test_json_body:test_any_body_gives_a_value_or_an_error_for_the_caller"),
    ("wire.large_json", "wire.test_large_json:test_what_is_replaced_is_its_own_json"),
    ("wire.lines", "wire.test_lines:test_any_chunking_gives_the_lines_between_the_lfs"),
    ("wire.surrogates", "wire.test_surrogates:test_however_a_text_is_cut_its_pieces_join_to_the_same"),
    ("wire.sse", "wire.test_sse:test_what_is_framed_is_read_back_in_any_chunking"),
    ("stages.assembler", f"{_LAWS}:test_any_events_in_any_order_give_a_well_formed_stream"),
    ("markdown.blocks", "markdown.test_blocks:test_generated_text_has_the_fences_that_markdown_it_finds"),
    ("model.caller_tools", f"{_HERE}:test_any_tool_can_be_offered_or_is_refused"),
    ("stages.cutting", "stages.test_cutting:test_the_pieces_do_not_matter"),
    ("stages.diffs", "stages.test_diffs:test_a_change_is_the_smallest_says_what_it_replaces_and_gives_the_new_text"),
    ("model.agent_events", "model.test_agent_events:test_merging_changes_no_text_and_no_order"),
    ("model.document_events", f"{_LAWS}:test_any_text_between_any_events_is_said_exactly"),
    ("model.documents", f"{_HERE}:test_any_document_is_read_back_the_same"),
    ("markdown.fences", "markdown.test_fences:test_the_raws_are_the_text_and_chunks_do_not_matter"),
    (
        "prompting.fingerprints",
        "prompting.test_fingerprints:test_two_histories_share_a_fingerprint_only_when_they_say_the_same",
    ),
    ("model.messages", "model.test_messages_images:test_a_data_uri_gives_back_what_was_put_in"),
    ("stages.tool_documents", "stages.test_tool_documents_languages:test_only_the_last_part_of_a_path_matters"),
    ("stages.caller_runs", f"{_HERE}:test_a_loop_is_an_unbroken_row_of_repetitions"),
    ("sources.cursor.native_requests", "sources.test_native_requests:test_a_call_fits_its_tool_whatever_was_offered"),
    ("wire.payload", f"{_HERE}:test_no_payload_raises"),
    ("prompting.prompt", "prompting.test_prompt:test_any_messages_can_be_read_back"),
    ("prompting.replies", f"{_HERE}:test_any_answers_are_sent_or_refused"),
    ("prompting.structured", "prompting.test_structured:test_what_is_found_is_json"),
    ("stages.search_tokens", "stages.test_search_tokens:test_tokens_are_what_every_engine_can_store"),
    ("stages.search_tokens", "stages.test_search_tokens_documents:test_names_and_contents_have_room_of_their_own"),
    ("stages.summary", f"{_HERE}:test_any_tools_document_is_one_line"),
    ("stages.tokens", "stages.test_tokens:test_no_text_costs_less_than_nothing_or_more_than_its_characters"),
    ("stages.tool_documents", f"{_HERE}:test_any_action_and_outcome_is_a_document"),
    ("sources.cursor.tools", "sources.test_tools:test_no_payload_is_too_strange"),
    ("stages.run_state", f"{_LAWS}:test_the_stream_of_any_events_folds_to_their_response"),
    ("stages.usage", f"{_HERE}:test_turns_are_never_more_than_what_happened"),
    ("stages.run_state", "stages.test_run_state:test_a_run_cut_anywhere_ends_well"),
    ("dialects.documents.encoder", f"{_LAWS}:test_the_stream_of_any_events_folds_to_their_response"),
    ("dialects.documents.request", f"{_HERE}:test_any_body_of_the_documents_dialect_is_read_or_refused"),
    ("dialects.chat.encoder", f"{_LAWS}:test_the_chunks_of_any_events_fold_to_their_completion"),
    ("dialects.chat.dialect", "dialects.chat.test_dialect_request:test_any_body_is_read_or_refused"),
    ("dialects.replies", f"{_LAWS}:test_any_text_between_any_events_is_said_exactly"),
    ("sources.acp.calls", f"{_HERE}:test_any_call_over_acp_starts_and_ends"),
    ("sources.acp.decoder", "sources.test_acp_decoder:test_text_is_what_its_pieces_are"),
    ("sources.acp.models", f"{_HERE}:test_a_model_over_acp_is_one_that_there_is"),
    ("sources.acp.calls", f"{_HERE}:test_nothing_is_allowed_without_a_rule"),
    ("sources.cursor.failures", "sources.test_failures:test_only_the_last_chunk_can_be_a_failure"),
    ("sources.cursor.command", f"{_HERE}:test_no_prompt_becomes_an_option_or_a_command"),
    ("sources.cli.decoder", f"{_LAWS}:test_any_recording_gives_a_well_formed_stream"),
    ("sources.cursor.failures", f"{_HERE}:test_any_last_words_are_an_error_that_can_be_shown"),
    ("sources.cursor.permissions", "sources.test_permissions:test_no_call_is_allowed_that_a_policy_forbids"),
    ("sources.cursor.permissions", "sources.test_permissions:test_only_a_rule_allows_a_call"),
    ("sources.cli.reconcile", "sources.test_reconcile:test_several_at_once_are_said_as_one_by_one"),
    ("sources.cursor.records", "sources.test_records:test_no_bytes_at_all_raise"),
    ("sources.sdk.decoder", "sources.test_sdk_decoder:test_however_often_it_is_read_the_same_is_returned"),
    ("sources.sdk.failures", f"{_HERE}:test_any_error_of_the_sdk_is_one_of_ours"),
    ("sources.sdk.decoder", f"{_HERE}:test_any_payload_of_the_sdk_is_one_of_the_protocol"),
    ("sources.sdk.requests", f"{_HERE}:test_any_models_name_is_chosen"),
    ("sources.sdk.requests", "sources.test_sdk_requests:test_a_schema_that_has_lost_what_is_dropped_means_the_same"),
    ("dialects.chat.dialect", f"{_LAWS}:test_the_chunks_of_any_events_fold_to_their_completion"),
    ("dialects.documents.dialect", f"{_LAWS}:test_the_chunks_of_any_events_fold_to_their_completion"),
    ("stages.usage", "stages.test_usage_context_size:test_the_last_call_read_what_was_added_and_no_more_than_all"),
    ("stages.tool_documents", f"{_LAWS}:test_readable_text_has_blank_lines_between_tools"),
    ("stages.hunks", "stages.test_hunks:test_any_subset_of_hunks_is_applied_exactly"),
    ("stages.caller_runs", "stages.test_caller_runs:test_thinking_is_relative_however_it_is_cut"),
    ("stages.usage", f"{_LAWS}:test_any_recording_gives_a_well_formed_stream"),
    ("dialects.deltas", "dialects.test_deltas_marked:test_the_agents_text_comes_back"),
    *((f"dialects.{name}", "laws.test_ui:test_any_events_in_any_order_are_said_exactly") for name in _UI),
    *((f"dialects.{name}", f"{_HERE}:test_any_body_of_a_web_page_is_read_or_refused") for name in _UI),
    ("dialects.ui", f"{_HERE}:test_any_body_of_a_web_page_is_read_or_refused"),
    ("dialects.ui", "laws.test_ui:test_a_stream_is_resumed_after_any_event"),
    ("model.costs", "model.test_costs:test_any_tokens_cost_what_their_parts_cost"),
    ("stages.run_questions", "stages.test_run_questions:test_what_any_run_asks_is_in_one_of_its_documents"),
    ("stages.run_spans", "stages.test_run_spans:test_the_spans_of_any_events_end_once_and_after_their_start"),
    ("dialects.deltas", "laws.test_responses:test_any_events_give_a_lawful_response"),
    ("dialects.messages.encoder", "laws.test_messages:test_the_events_of_any_agent_fold_to_its_message"),
    ("dialects.messages.dialect", "laws.test_messages:test_the_events_of_any_agent_fold_to_its_message"),
    ("dialects.messages.shapes", "laws.test_messages:test_the_events_of_any_agent_fold_to_its_message"),
    ("dialects.messages.dialect", "dialects.messages.test_dialect_conversation:test_any_blocks_are_read_or_refused"),
    ("dialects.messages.dialect", "dialects.messages.test_dialect_request:test_any_values_are_read_or_refused"),
    ("dialects.responses.encoder", "laws.test_responses:test_any_events_give_a_lawful_response"),
    ("dialects.responses.shapes", "laws.test_responses:test_any_events_give_a_lawful_response"),
    ("dialects.replies", "laws.test_responses:test_a_reader_that_resumes_gets_what_it_lacks"),
    ("stages.changes", "stages.test_changes:test_the_combined_change_makes_the_last_version_of_the_first"),
    ("dialects.messages.dialect", f"{_HERE}:test_any_headers_of_a_client_are_read_or_refused"),
    ("dialects.responses.encoder", f"{_HERE}:test_any_page_that_is_cited_stands_in_the_text"),
    ("dialects.responses.request", f"{_HERE}:test_any_headers_of_a_client_are_read_or_refused"),
    ("dialects.requests", f"{_HERE}:test_any_headers_of_a_client_are_read_or_refused"),
    ("dialects.responses.conversation", f"{_HERE}:test_any_conversation_is_packed_and_unpacked"),
    ("dialects.responses.dialect", f"{_HERE}:test_any_page_of_input_items_is_listed_or_refused"),
    ("dialects.responses.shapes", f"{_HERE}:test_any_failure_is_an_error_of_each_vendor"),
    ("dialects.messages.shapes", f"{_HERE}:test_any_failure_is_an_error_of_each_vendor"),
    ("dialects.responses.shapes", f"{_HERE}:test_an_answers_id_names_its_run_in_each_dialect"),
    ("dialects.messages.shapes", f"{_HERE}:test_an_answers_id_names_its_run_in_each_dialect"),
    ("dialects.responses.conversation", f"{_HERE}:test_any_tools_of_a_response_are_offered_or_refused"),
    ("dialects.responses.conversation", "laws.test_responses_requests:test_any_body_is_read_or_refused"),
    ("dialects.responses.dialect", "laws.test_responses_requests:test_any_body_is_computed_or_refused"),
    ("dialects.responses.request", "laws.test_responses_requests:test_any_body_is_read_or_refused"),
    ("dialects.requests", "laws.test_responses_requests:test_any_body_is_read_or_refused"),
    ("dialects.requests", "dialects.test_requests_attempts:test_any_headers_have_an_attempt"),
    ("dialects.checked", "dialects.test_checked:test_any_events_are_shown_or_asked_for_again"),
    ("dialects.deltas", f"{_LAWS}:test_the_chunks_of_any_events_fold_to_their_completion"),
]


def _pure_stages() -> set[str]:
    """What import-linter holds to be pure: packages with all their modules."""
    contracts = configparser.ConfigParser()
    contracts.read(_PROJECT / ".importlinter")
    named = contracts["importlinter:contract:pure"]["source_modules"].split()
    found: set[str] = set()
    for name in (name.removeprefix("cursor_gateway.") for name in named):
        folder = _PACKAGE / name.replace(".", "/")
        modules = [name] if not folder.is_dir() else [_dotted(path) for path in folder.rglob("*.py")]
        found |= {module for module in modules if module.split(".")[0] in _STAGES and not module.endswith("__init__")}
    return found


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)


def test_every_pure_stage_is_tried_on_generated_input() -> None:
    assert {module for module, _ in PROPERTIES} == _pure_stages() - _TYPES_ALONE


@pytest.mark.parametrize("place", sorted({test for _, test in PROPERTIES}))
def test_the_tests_that_the_table_names_generate_their_input(place: str) -> None:
    module, _, name = place.partition(":")
    assert is_hypothesis_test(getattr(import_module(f"tests.{module}"), name))


# --- core -----------------------------------------------------------------------------------------------

_choices: st.SearchStrategy[caller_tools.ToolChoice] = st.one_of(
    st.just(caller_tools.NoTool()),
    st.just(caller_tools.AutoTool()),
    st.just(caller_tools.RequiredTool()),
    st.builds(caller_tools.NamedTool, st.sampled_from(["a", "b"])),
)
_objects = st.dictionaries(nasty | st.sampled_from(["type", "properties"]), any_json, max_size=3)


@examples(100)
@given(nasty | st.sampled_from(["a", "b", "x.y/z"]), st.none() | nasty, st.none() | _objects, _choices)
def test_any_tool_can_be_offered_or_is_refused(
    name: str, description: str | None, parameters: dict[str, Any] | None, choice: caller_tools.ToolChoice
) -> None:
    try:
        tool = caller_tools.make_tool(name, description, parameters, "tools[0]")
    except InvalidRequest:
        return
    except UnicodeEncodeError:
        assert repair_json(parameters) != parameters  # such text is repaired before: see wire/json_body
        return
    assert tool.parameters["type"] == "object"
    offer = caller_tools.Offer(tools=[tool, caller_tools.Tool("b")], choice=choice)
    assert all(usable_tool in offer.tools for usable_tool in caller_tools.usable(offer))
    reply = caller_tools.preamble(offer, "server")
    assert all(f"`{usable_tool.name}`" in reply for usable_tool in caller_tools.usable(offer))
    assert ("call the tools" in reply) == (not isinstance(choice, caller_tools.NoTool))


@examples(100)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()), max_size=60))
def test_a_loop_is_an_unbroken_row_of_repetitions(calls: list[tuple[str, str, bool]]) -> None:
    guard = LoopGuard()
    seen: list[tuple[str, str]] = []
    row = 0
    for call, result, is_slow in calls:
        reply = guard.gave(call, result, 2.0 if is_slow else 0.0)
        row = row + 1 if (call, result) in seen and not is_slow else 0
        seen.append((call, result))
        assert bool(reply) == (seen.count((call, result)) >= 3)
        assert guard.is_loop == (row >= 25)


@examples(100)
@given(any_json)
def test_no_payload_raises(value: Any) -> None:
    for fields in (Fields(value), Fields({"a": value})):
        for name in [*fields.all, "a"]:
            assert isinstance(fields.text(name), str)
            assert fields.maybe_text(name) is None or fields.text(name) == fields.maybe_text(name)
            number = fields.integer(name)
            assert number is None or clamped(int(fields.all[name])) == number
            assert fields.flag(name) in (None, True, False)
            assert all(isinstance(text, str) for text in fields.texts(name))
            assert len(fields.objects(name)) <= len(fields.items(name))
            fields.object(name)


_ids = st.sampled_from(["", "a", "b"])
_questions = st.lists(
    st.builds(
        ClarificationQuestion,
        id=_ids,
        text=nasty,
        options=st.lists(st.builds(ClarificationOption, id=_ids, label=nasty), max_size=2),
    ),
    max_size=2,
)
_answers = st.lists(
    st.builds(
        ClarificationAnswer,
        question_id=_ids,
        selected_option_ids=st.lists(_ids, max_size=2),
        text=st.just(UNSET) | nasty,
    ),
    max_size=2,
)


@examples(100)
@given(_questions, _answers, nasty)
def test_any_answers_are_sent_or_refused(
    questions: list[ClarificationQuestion], answers: list[ClarificationAnswer], text: str
) -> None:
    plan = make_document("doc_001", 1, text, PlanMetadata(title=text, overview="", todos=[]))
    documents = [plan, make_document("doc_002", 2, None, ClarificationMetadata(questions=questions))]
    try:
        reply = answers_message(documents, answers)
    except (InvalidRequest, NotFound):
        pass
    else:
        check_answers({question.id: question for question in questions}, answers)
        assert all(answer.text in reply for answer in answers if answer.text)
    assert plan_message(documents, "reject", text).endswith(text)


@examples(100)
@given(st.builds(make_document, nasty, st.integers(1, 99), nasty | st.none(), metadata))
def test_any_document_is_read_back_the_same(document: Document) -> None:
    try:
        reply = msgspec.json.encode(document)
    except UnicodeEncodeError:  # half a character, which no stage before lets through
        return
    try:
        read = msgspec.json.decode(reply, type=Document)
    except msgspec.ValidationError:  # a state that only JSON of another make has
        assert "new" in reply.decode()
        return
    assert msgspec.json.encode(read) == reply
    assert document_type(read.metadata) == document_type(document.metadata)
    assert is_tool_use(read) == is_tool_use(document)


_NO_TOOLS = ("text", "thinking", "code_block", "code_reference", "error")


@examples(100)
@given(st.builds(make_document, nasty, st.integers(1, 99), nasty, metadata))
def test_any_tools_document_is_one_line(document: Document) -> None:
    line = one_line(document)
    assert (line is None) == (document_type(document.metadata) in _NO_TOOLS)
    assert line is None or (line == " ".join(line.split()) and len(line) <= 500)


_outcomes = st.builds(
    Outcome,
    state=st.sampled_from(["completed", "failed", "rejected", "timed_out", "interrupted"]),
    code=nasty,
    message=nasty,
    duration_ms=st.none() | st.integers(-1, 10),
)
_results = st.builds(caller_tools.ToolResult, text=nasty, structured=st.just(UNSET) | any_json, is_error=st.booleans())


@examples(100)
@given(actions, _outcomes, nasty, any_json, _results)
def test_any_action_and_outcome_is_a_document(
    action: Action, outcome: Outcome, call_id: str, payload: Any, result: caller_tools.ToolResult
) -> None:
    kind, _ = started(action)
    for ended_action, how in ((action, outcome), answered(action, result, 3)):
        about = metadata_of(ended_action, how, call_id="call_001", agent_call_id=call_id, payload=payload)
        document = make_document("doc_001", 1, content_of(ended_action), about)
        assert (getattr(about, "state", UNSET) is UNSET) == (how.state == "completed")
        assert document_type(about) == (kind if ended_action is action else "tool_call")
        assert document.metadata is about
    assert answered(action, result, 3)[1].state == ("failed" if result.is_error else "completed")


@examples(150)
@given(st.lists(st.sampled_from(["says", "ends", None, "m1", "m2"]), max_size=20))
def test_turns_are_never_more_than_what_happened(steps: list[str | None]) -> None:
    turns = Turns()
    for number, step in enumerate(steps, 1):
        match step:
            case "says":
                turns.output()
            case "ends":
                turns.end()
            case name:
                turns.tool(name)
        assert turns.count <= number
    if any(step != "ends" for step in steps):
        assert turns.count >= 1


_PAGE_PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "file", "tool-run", "dynamic-tool", "data-x", "reasoning", "image"])},
    optional=dict.fromkeys(
        ("text", "state", "toolCallId", "toolName", "input", "output", "approval", "url", "mediaType"), any_json | nasty
    ),
)
_PAGE_MESSAGES = st.fixed_dictionaries(
    {"id": nasty, "role": st.sampled_from(["user", "assistant", "tool", "system", "developer"])},
    optional={
        "parts": st.lists(_PAGE_PARTS, max_size=3),
        "content": nasty | st.lists(_PAGE_PARTS, max_size=2),
        "toolCalls": any_json,
        "toolCallId": nasty,
    },
)
_PAGE_BODIES = st.fixed_dictionaries(
    {"messages": st.lists(_PAGE_MESSAGES, max_size=4) | any_json},
    optional=dict.fromkeys(
        ("id", "trigger", "messageId", "threadId", "runId", "tools", "context", "state", "resume", "cursor"),
        any_json | nasty,
    ),
)


@pytest.mark.parametrize("dialect", [ai_sdk_dialect(3), ag_ui_dialect(3)], ids=["ai_sdk", "ag_ui"])
@examples(200)
@given(_PAGE_BODIES, st.dictionaries(st.sampled_from(["x-cursor-mode", "x-cursor-may-ask"]), nasty, max_size=2))
def test_any_body_of_a_web_page_is_read_or_refused(
    dialect: Dialect, fields: dict[str, Any], headers: dict[str, str]
) -> None:
    for route in dialect.routes:
        with suppress(InvalidRequest):
            route.read(json.dumps(fields).encode(), headers)


# --- dialects -------------------------------------------------------------------------------------------

_FIELDS = ["message", "model", "mode", "tools", "toolChoice", "images", "include", "toolResults", "answers", "plan"]
_parts = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"])}, optional={"text": any_json})
_given = st.fixed_dictionaries(
    {},
    optional={
        "message": nasty,
        "tools": st.lists(st.dictionaries(st.sampled_from(["name", "parameters", "function"]), any_json), max_size=2),
        "toolChoice": st.sampled_from(["auto", "none", "required", {"name": "a"}]) | any_json,
        "toolResults": st.lists(
            st.fixed_dictionaries({"toolCallId": nasty, "content": any_json | st.lists(_parts, max_size=2)}), max_size=2
        ),
        "answers": st.lists(st.fixed_dictionaries({"questionId": nasty, "text": nasty}), max_size=2),
        "plan": st.sampled_from(["accept", "reject"]),
        "text": nasty,
    },
)


@examples(200)
@given(_given | st.dictionaries(st.sampled_from(_FIELDS), any_json, max_size=3))
def test_any_body_of_the_documents_dialect_is_read_or_refused(fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    with suppress(InvalidRequest):
        offer_of(read_chat_request(body))
    with suppress(InvalidRequest):
        request = read_answer(body)
        results = results_of(request.tool_results or ())
        assert set(results) == {answer.tool_call_id for answer in request.tool_results or ()}
        assert len(answers_of(request.answers or ())) == len(request.answers or ())


# --- dialects -------------------------------------------------------------------------------------------

_HEADERS = (
    "originator",
    "session-id",
    "thread-id",
    "x-codex-turn-metadata",
    "x-codex-parent-thread-id",
    "user-agent",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-cursor-mode",
    "x-cursor-include",
    "x-cursor-workspace",
)
_values = texts | any_json.map(json.dumps) | st.sampled_from(["codex_cli_rs", "claude-cli/2.1", "ask", "thinking,raw"])
_headers = st.dictionaries(st.sampled_from(_HEADERS), _values, max_size=4)


_urls = st.sampled_from(["http://a", "http://a/b", "http://a/b?c=d", "https://é.de/", "x"]) | texts.filter(bool)


@examples(200)
@given(
    st.lists(_urls | texts | st.sampled_from([" ", "[", "](", ")", ".", "a"]), max_size=12),
    st.dictionaries(_urls, texts),
)
def test_any_page_that_is_cited_stands_in_the_text(parts: list[str], pages: dict[str, str]) -> None:
    text = "".join(parts)
    found = citations(text, pages)
    assert [citation.start_index for citation in found] == sorted(citation.start_index for citation in found)
    for citation in found:
        assert citation.url in text[citation.start_index : citation.end_index]
        assert citation.title == pages[citation.url]
    assert citations(text, {f"{number} not there": "" for number in range(500)} | pages)[:1] == found[:1]


@examples(200)
@given(_headers, st.dictionaries(st.sampled_from(_HEADERS), any_json, max_size=2), texts)
def test_any_headers_of_a_client_are_read_or_refused(
    headers: dict[str, str], metadata: dict[str, Any], text: str
) -> None:
    codex = read_codex(headers, metadata, text)
    is_named = headers.get("originator", "").startswith("codex") or "x-codex-turn-metadata" in headers
    assert codex is None or is_named
    assert isinstance(session_of(headers, text), str)
    assert folder_of([Instructions(f"Primary working directory: {text}\n")]) in (text.split("\n")[0].strip(), None)
    with suppress(InvalidRequest):
        assert with_headers(CursorOptions(fences="inline"), headers).fences == "inline"


@examples(200)
@given(st.lists(st.dictionaries(nasty, any_json, max_size=3), max_size=3), nasty)
def test_any_conversation_is_packed_and_unpacked(items: list[dict[str, Any]], text: str) -> None:
    items = json.loads(json.dumps(items).encode().replace(b"\\ud", b"u"))  # a body has no half characters
    packed = pack(items)
    assert msgspec.json.encode(unpack(packed)) == msgspec.json.encode(items)
    assert unpack(text) == unpack(f"{packed[:4]}{text}") == [] or text.startswith(packed[:4])


@examples(200)
@given(
    st.lists(st.dictionaries(st.sampled_from(["type", "id", "role", "content"]), texts, max_size=4), max_size=5),
    st.dictionaries(st.sampled_from(["after", "limit", "order", "starting_after"]), texts | st.just("1"), max_size=3),
)
def test_any_page_of_input_items_is_listed_or_refused(items: list[dict[str, Any]], query: dict[str, str]) -> None:
    with suppress(InvalidRequest):
        assert starting_after(query) >= -1
    with suppress(InvalidRequest):
        page = json.loads(list_items(items, query))
        assert len(page["data"]) <= len(items)
        assert all(item["id"] and item["type"] for item in page["data"])


_failures = st.builds(
    Failure,
    code=st.sampled_from(["agent_crashed", "insufficient_quota", "cancelled"]),
    message=nasty,
    status=st.integers(400, 599),
    retryable=st.booleans(),
    retry_after=st.none() | st.integers(0, 100),
)


@examples(100)
@given(_failures, st.booleans(), st.booleans())
def test_any_failure_is_an_error_of_each_vendor(failure: Failure, is_codex: bool, has_begun: bool) -> None:
    error = InvalidRequest(failure.message, details=failure.message, param=failure.message).failure()
    assert repair_json([error.message, error.details, error.param]) == [error.message, error.details, error.param]
    failure = msgspec.structs.replace(failure, message=error.message)
    assert failure.message in response_error(failure, is_codex=is_codex, has_begun=has_begun).message
    assert json.loads(encode_anthropic_error(failure))["error"]["message"] == failure.message
    (frame,) = SseDecoder().push(stream_error(failure))
    assert json.loads(frame.data)["error"]["type"] in ("invalid_request_error", "rate_limit_error")


@examples(100)
@given(st.text("0123456789abcdef", min_size=32, max_size=32), st.integers(0, 10**9), st.integers(0, 999), nasty)
def test_an_answers_id_names_its_run_in_each_dialect(run: str, after: int, index: int, strange: str) -> None:
    answer = AnswerId(f"chat_{run}", after)
    assert answer_id(response_id(answer.run_id, after)) == answer
    assert read_item_id(item_id("msg", answer.run_id, after, index)) == ItemId(answer, index)
    assert message_answer_id(message_id(answer.run_id, after)) == AnswerId(answer.run_id, after)
    answer_id(strange), read_item_id(strange), message_answer_id(strange)


_declared = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom", "namespace", "web_search", "new"])},
    optional={"name": nasty, "description": nasty, "parameters": any_json, "format": any_json, "tools": st.just([])},
)


@examples(200)
@given(st.lists(_declared, max_size=4), any_json | st.sampled_from(["auto", "none", "required"]))
def test_any_tools_of_a_response_are_offered_or_refused(tools: list[dict[str, Any]], choice: Any) -> None:
    try:
        msgspec.json.encode([tools, choice])
    except UnicodeEncodeError:
        return  # such text is repaired before: see wire/json_body
    with suppress(InvalidRequest):
        toolbox = read_tools([("tools", tool) for tool in tools], choice)
        names = [tool.name for tool in toolbox.offer.tools] if toolbox.offer is not None else []
        assert len(names) == len(set(names)) <= len(tools)


# --- decoders -------------------------------------------------------------------------------------------

_update = st.fixed_dictionaries(
    {"toolCallId": nasty},
    optional={
        "title": nasty | st.sampled_from(["a-b: b", "`ls`", "Update TODOs"]),
        "kind": st.sampled_from(["execute", "edit", "search", "other", "fetch", "new"]) | nasty,
        "status": st.sampled_from(["completed", "failed"]),
        "rawInput": any_json | st.dictionaries(st.sampled_from(["_toolName", "command", "path"]), nasty),
        "rawOutput": any_json | st.dictionaries(st.sampled_from(["error", "exitCode", "success"]), any_json),
        "content": st.lists(
            st.fixed_dictionaries({"type": st.just("diff"), "oldText": nasty, "newText": nasty}) | any_json, max_size=2
        ),
        "locations": any_json,
    },
)


@examples(150)
@given(_update, _update)
def test_any_call_over_acp_starts_and_ends(first: dict[str, Any], then: dict[str, Any]) -> None:
    call = call_of(Fields(first))
    call_started(call)
    learn(call, Fields(then))
    _, outcome = ended(call, Fields(then).text("status"))
    call.is_denied = True
    assert ended(call)[1].state == "rejected"
    assert outcome.state != "interrupted"


@examples(150)
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error"]), any_json), st.binary(max_size=9))
def test_any_message_is_written_and_read_back(message: dict[str, Any], line: bytes) -> None:
    written = line_of(message)
    assert written.count(b"\n") == 1
    read = message_of(written)
    assert read is None or line_of(read) == written
    assert message_of(line) is None
    assert isinstance(error_text("told", message.get("error")), str)


_names = st.lists(st.sampled_from("abx-[]=,") | st.sampled_from(["default", "high", "true"]), max_size=6).map("".join)


@examples(150)
@given(_names | st.just("auto"), st.lists(_names, max_size=4))
def test_a_model_over_acp_is_one_that_there_is(wanted: str, available: list[str]) -> None:
    names = dict.fromkeys(available, "")
    found = candidates(wanted, names)
    assert {id for id, _ in found} <= set(available)
    assert wanted not in available or [id for id, _ in found] == [wanted]
    for id, rest in found:
        settings = settings_for(id, rest, {})
        assert settings is None or settings.get("fast") != "true" or "fast" in wanted
    nearest_variants(wanted, Choice(names=names))


_COMMANDS = st.lists(st.sampled_from(["git status", "rm -rf /", "&&", ";", "|", "\n", "$(x)", "`x`", " "]) | nasty).map(
    "".join
)


@examples(150)
@given(_COMMANDS, nasty, st.sampled_from(["execute", "edit", "read", "fetch", "other", "search"]), any_json)
def test_nothing_is_allowed_without_a_rule(command: str, path: str, kind: str, options: Any) -> None:
    given_args = {"command": command, "path": path, "url": path}
    call = call_of(Fields({"toolCallId": "1", "kind": kind, "rawInput": given_args}))
    assert not is_allowed(call, [], "/w")
    assert not is_allowed(call, ["Mcp(a:b)", "nonsense"], "/w")
    if kind == "edit" and is_allowed(call, ["Write(src/**)"], "/w"):
        assert normpath(join("/w", path)).startswith("/w/src/")
    if kind == "execute" and is_allowed(call, ["Shell(git)"], "/w"):
        assert not re.search(r"[<>`]|\$\(", command)
        assert all(part.strip().startswith("git") for part in re.split(r"[;&|\n]+", command) if part.strip())
    assert option_for(options if isinstance(options, list) else [], True)["outcome"]
    if (request := needed("shell", given_args)) is not None:  # it is shown as it is, and has no wildcard
        assert request.subject == command
        assert all(re.fullmatch(r"Shell\([\w./+@%~-]+\)", rule) for rule in request.rules)
    assert wrong_rules([path]) == ([] if re.fullmatch(r"(Shell|Write|Read|Mcp|WebFetch)\(.+\)", path) else [path])


@examples(150)
@given(nasty | texts, st.lists(nasty, max_size=3))
@example("Cannot use this model: x. Available models: , ", [])
def test_any_last_words_are_an_error_that_can_be_shown(text: str, names: list[str]) -> None:
    for error in (known_failure(text), failure_of(text), reported_failure(text)):
        if error is not None:
            failure = error.failure()
            assert 400 <= failure.status < 600
            assert not re.search(r"[\x00-\x1f]", failure.message)
            assert len(failure.details) <= 2000
    assert plain(plain(text)) in plain(text)
    assert set(nearest_names(text, dict.fromkeys(names, ()))) <= set(names)
    models = parse_models(text)
    assert all(is_known(model.id, models) and model.label for model in models)


_words = (
    st.sampled_from(["", "unauthorized", "SDK_ERROR_CODE_AGENT_BUSY", "internal", "timeout", "fetch failed"]) | nasty
)


@examples(150)
@given(_words, _words, _words, st.sampled_from(["", "7", "0.5s", "x", "9" * 30]), st.sampled_from(["error", "expired"]))
def test_any_error_of_the_sdk_is_one_of_ours(code: str, sdk: str, message: str, after: str, status: str) -> None:
    reply = Reported(name="APIError", message=message, sdk_code=sdk, code=code, retry_after=after)
    assert isinstance(error_of(reply), GatewayError)
    for failure in (sdk_failure_of(reply), run_failure(status, code, message)):
        assert 400 <= failure.status < 600
        assert failure.retry_after is None or failure.retry_after >= 1


_TOOLS = st.sampled_from(["shell", "grep", "edit", "updateTodos", "createPlan", "new"])


@examples(150)
@given(_TOOLS, any_json, st.fixed_dictionaries({"status": st.sampled_from(["success", "error"])}), any_json)
def test_any_payload_of_the_sdk_is_one_of_the_protocol(
    tool: str, args: Any, result: dict[str, Any], value: Any
) -> None:
    for reply in (protocol_result(tool, {**result, "value": value, "error": value}), protocol_result(tool, value)):
        read_result(tool, protocol_arguments(tool, args), reply)
    if result["status"] == "error":
        assert protocol_result(tool, {**result, "error": value}) == {"error": value}


@examples(100)
@given(nasty | st.from_regex(r"\A[a-z-]+\[([a-z]+=[a-z0-9]+,?)*\]\Z"))
def test_any_models_name_is_chosen(model: str) -> None:
    chosen = selection(model)
    assert model.startswith(str(chosen["id"]))
    assert ("params" in chosen) == ("[" in model and model.endswith("]"))


@examples(100)
@given(_words, st.dictionaries(nasty, any_json, max_size=3))
def test_any_object_of_the_sdk_is_plain_data(kind: str, fields: dict[str, Any]) -> None:
    for name in (kind, "interaction_update", "sdk_message", "result"):
        event = SimpleNamespace(kind=name, interaction_update=fields, sdk_message=fields, result=fields)
        reply = plain_update(event)
        assert dict(reply) == (fields if name in ("interaction_update", "sdk_message", "result") else {})


_PROGRAM = Program("cursor-agent", "2026.07", frozenset())  # takes its prompt as an argument
_turns = st.builds(
    Turn,
    prompt=nasty | st.sampled_from(["logout", "--force", "-p", "mcp\n"]),
    model=st.just("auto"),
    mode=st.sampled_from(["agent", "plan", "ask", "debug"]),
    workspace=st.just("/w"),
)


@examples(150)
@given(_turns)
def test_no_prompt_becomes_an_option_or_a_command(turn: Turn) -> None:
    command = command_for(turn, _PROGRAM, CommandOptions(trust=False))
    other = command_for(replace(turn, prompt="Hi there."), _PROGRAM, CommandOptions(trust=False))
    if command.stdin is not None:
        return
    *options, prompt = command.arguments
    guard = ["--"] if prompt.startswith("-") else []
    assert options == [*other.arguments[:-1], *guard]
    assert (prompt, prompt == "logout") == (turn.prompt, False)
