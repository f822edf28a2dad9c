"""Which run wrote which lines in; a record of Agent Trace out."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import UNSET, UnsetType

from cursor_gateway.model import agent_trace
from cursor_gateway.model.changes import LineTrace, WrittenFile

_LONGEST_MODEL = 250  # characters, by the specification


def trace_record(
    found: LineTrace, conversation_id: str, updated_ms: int, models: Mapping[str, str], url: str
) -> agent_trace.TraceRecord:
    """`models` are those of the runs, in their order; `url` is the gateway's."""
    url = url.rstrip("/")
    own = f"{url}/v1/conversations/{conversation_id}"
    files = [
        agent_trace.TraceFile(path=file.path, conversations=_by_run(file, own, models, url)) for file in found.files
    ]
    return agent_trace.TraceRecord(
        version=agent_trace.VERSION,
        id=str(uuid5(NAMESPACE_URL, own + msgspec.json.encode(files).decode())),
        timestamp=datetime.fromtimestamp(updated_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        vcs=agent_trace.TraceVcs(type="git", revision=found.revision) if found.revision else UNSET,
        tool=agent_trace.TraceTool(name="cursor-gateway", version=version("cursor-gateway")),
        files=files,
        metadata={"cursor_gateway.notes": found.notes} if found.notes else UNSET,
    )


def _by_run(
    file: WrittenFile, conversation: str, models: Mapping[str, str], url: str
) -> list[agent_trace.TraceConversation]:
    ranges: dict[str, list[agent_trace.TraceRange]] = {run_id: [] for run_id in models}
    for lines in file.lines:
        own = agent_trace.TraceRange(start_line=lines.start, end_line=lines.end, content_hash=f"sha256:{lines.hash}")
        ranges.setdefault(lines.chat_id, []).append(own)
    return [
        agent_trace.TraceConversation(
            url=conversation,
            contributor=agent_trace.TraceContributor(type="ai", model_id=_model_id(models.get(run_id, ""))),
            ranges=own,
            related=[agent_trace.TraceResource(type="run", url=f"{url}/v1/chat/{run_id}")],
        )
        for run_id, own in ranges.items()
        if own
    ]


def _model_id(model: str) -> str | UnsetType:
    """The provider, and the model's name there."""
    return f"cursor/{'-'.join(model.split())}"[:_LONGEST_MODEL] if model else UNSET
