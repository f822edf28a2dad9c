"""The description of AG-UI's dialect: `POST /v1/ag-ui`."""

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.ag_ui.dialect import AgUiReply
from cursor_gateway.dialects.ag_ui.request import RunAgentInput
from cursor_gateway.dialects.openapi import Description, Json, Sample
from cursor_gateway.dialects.ui_requests import UiOptions


def describe(sample: Sample) -> Description:
    events = api.stream(
        "The data of each event is an event of AG-UI 1.0. A run that fails, also before its first event, ends with "
        "`RUN_ERROR`. The id of an event is its number in the run, for `/v1/chat/{id}/events?dialect=ag-ui`.",
        api.sse_event(("AgUiEvent",)),
        api.stream_example(sample, AgUiReply()),
    )
    create = api.operation(
        "runAgent",
        "Run the agent for an AG-UI client",
        "Takes what an AG-UI client sends, and streams the run's events. Results of the page's tools, as messages, and "
        "answers to interrupts, in `resume`, continue the run that waits for them. The same `runId` again joins the "
        "run that it has started.",
        body=_BODY,
        replies=api.ok("The events.", {"text/event-stream": events}, api.RUN_HEADERS),
        errors=api.run_errors(),
        parameters=[api.IDEMPOTENCY_KEY, *api.cursor_headers(UiOptions)],
    )
    return Description("AG-UI", "For pages that speak AG-UI.", {"POST /v1/ag-ui": create}, _schemas())


_INPUT: Json = {
    "threadId": "thread-1",
    "runId": "run-1",
    "messages": [{"id": "m1", "role": "user", "content": "What does this project do?"}],
}
_BODY = api.json_body(
    "AgUiRunInput",
    question=("A question", _INPUT),
    tools=("A tool of the page", {**_INPUT, "tools": [api.WEATHER]}),
    resume=(
        "Allowing a command",
        {
            **_INPUT,
            "runId": "run-2",
            "resume": [
                {
                    "interruptId": "permission:chat_7f3a2b1c.doc_002",
                    "status": "resolved",
                    "payload": {"approved": True},
                }
            ],
        },
    ),
)


def _name(type: str) -> str:
    return "AgUiRunInput" if type == "RunAgentInput" else f"AgUi{type.removeprefix('AgUi').removeprefix('Ui')}"


def _schemas() -> dict[str, Json]:
    exact = {"AgUiPageTool.parameters": api.TOOL_PARAMETERS}
    event = api.record(
        "AgUiEvent", "An event.", {"type": (api.TEXT, "`RUN_STARTED`, `TEXT_MESSAGE_CONTENT` and others.")}
    )
    return {**api.read_schemas([RunAgentInput], _name, exact), **event}
