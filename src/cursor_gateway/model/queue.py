"""What the API shows of requests that wait to be started, and of the processes that start them."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.model.documents import Mode

QueueState: TypeAlias = Literal["waiting", "scheduled", "starting"]


class QueuedRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request in the queue."""

    id: Annotated[str, "The id of the run that it becomes, for `/v1/chat/{id}`."]
    state: Annotated[QueueState, "`waiting` for a slot, `scheduled` for later (`runAt`), or `starting` now."]
    position: Annotated[int | UnsetType, "Its place among all requests that wait, from 1."] = UNSET
    age_seconds: Annotated[float, "How long it has waited."]
    priority: Annotated[int, "As in the request."]
    created: Annotated[str, "When it was accepted: ISO 8601, UTC."]
    run_at: Annotated[str | UnsetType, "When it is to start, if the request says so: ISO 8601, UTC."] = UNSET
    schedule: Annotated[str | UnsetType, "The name of the schedule in the settings that it comes from."] = UNSET
    expires: Annotated[str, "If it has not started by then, it fails with `queue_expired`: ISO 8601, UTC."]
    model: Annotated[str, "The requested model."]
    mode: Annotated[Mode, "The mode of the run."]
    conversation_id: Annotated[str | UnsetType, "Its conversation; omitted for other keys' requests."] = UNSET
    prompt: Annotated[str | UnsetType, "The first line of its prompt; omitted for other keys' requests."] = UNSET
    key: Annotated[str | UnsetType, "The name of its API key, for administrators."] = UNSET


class RunnerEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A process that runs agents, or serves clients."""

    id: Annotated[str, "Its id."]
    role: Annotated[Literal["all", "front", "runner"], "What it does."]
    host: Annotated[str, "Its machine."]
    volumes: Annotated[list[str], "The volumes that it has."] = []
    labels: Annotated[list[str], "Its labels."] = []
    running: Annotated[int, "Its active runs."]
    capacity: Annotated[int, "How many it can have."]
    draining: Annotated[bool, "Whether it accepts no new work."]
    version: Annotated[str, "Its version."]


class QueueReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The queue, and who works on it."""

    requests: Annotated[list[QueuedRequest], "Those of the API key, or all for administrators; the next one first."]
    runners: Annotated[list[RunnerEntry], "The processes of the cluster, for administrators."]
    can_drain: Annotated[bool, "Whether the caller may drain processes: an administrator, in a cluster."]
