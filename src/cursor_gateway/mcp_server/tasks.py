"""A run as an MCP task (the extension `io.modelcontextprotocol/tasks`): its response in, the task out.

The task's id is the run's, so a task is found again by every process that finds the run: after a restart, and on every
front of a cluster.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from cursor_gateway.errors import RunCancelled
from cursor_gateway.mcp_server.elicitation import METHOD, forms
from cursor_gateway.mcp_server.peers import Peer
from cursor_gateway.mcp_server.results import progress_of, task_result
from cursor_gateway.model.documents import ChatResponse, ErrorDocument

_POLL_MS = 1000


def ttl_of(history_days: float) -> int | None:
    """How long a gateway keeps a run at least, in milliseconds; None: without end."""
    return round(timedelta(days=history_days) / timedelta(milliseconds=1)) if history_days else None


def created_task(response: ChatResponse, ttl_ms: int | None, now: datetime) -> dict[str, Any]:
    """The result of the call that has started it."""
    return {**_task(response, "working", ttl_ms, now), "resultType": "task"}


def detailed_task(response: ChatResponse, peer: Peer, ttl_ms: int | None, now: datetime) -> dict[str, Any]:
    """The task with what it waits for, or with its result."""
    match response.status:
        case "streaming" if peer.can_elicit and (wanted := forms(response, peer)):
            requests = {id: {"method": METHOD, "params": form} for id, form in wanted.items()}
            return {**_task(response, "input_required", ttl_ms, now), "inputRequests": requests}
        case "streaming":
            return _task(response, "working", ttl_ms, now)
        case "error" if _is_cancelled(response):
            return _task(response, "cancelled", ttl_ms, now)
        case "error" | "completed":
            # An agent's error is a result of the tool: `failed` is for errors of the protocol.
            return {**_task(response, "completed", ttl_ms, now), "result": task_result(response)}


def _task(response: ChatResponse, status: str, ttl_ms: int | None, now: datetime) -> dict[str, Any]:
    created = datetime.fromisoformat(response.created)
    is_over = response.status in ("completed", "error")
    ended = created + timedelta(milliseconds=response.metadata.duration_ms) if is_over else None
    said = progress_of(response)
    return {
        "taskId": response.id,
        "status": status,
        **({"statusMessage": said} if said else {}),
        "createdAt": _stamp(created),
        "lastUpdatedAt": _stamp(ended or now),
        "ttlMs": ttl_ms,
        "pollIntervalMs": _POLL_MS,
    }


def _is_cancelled(response: ChatResponse) -> bool:
    last = response.documents[-1] if response.documents else None
    return isinstance(last, ErrorDocument) and last.metadata.error_code == RunCancelled.code.upper()


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
