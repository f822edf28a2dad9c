"""The state of a gateway, as `/health` reports it, and its queue. Older gateways leave out what has a default."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.model.documents import MODES, Mode


class HealthSource(Struct, frozen=True):
    """The backend."""

    name: Annotated[str, "`cli` for Cursor's agent, `replay` for recordings, `demo` for the built-in one."]
    detail: Annotated[str, "The program and version, or the recordings; empty if API keys are configured."]
    demo: Annotated[bool, "Whether the gateway runs as a demo."] = False


class HealthRuns(Struct, frozen=True):
    """The load."""

    running: Annotated[int, "Active runs."]
    limit: Annotated[int, "The maximum; further runs get 429."]


class Health(Struct, frozen=True, kw_only=True):
    """The state of the gateway."""

    status: Annotated[
        str,  # not a Literal: a client must be able to read what a newer gateway reports
        Meta(extra_json_schema={"enum": ["ok", "degraded", "unavailable"]}),
        "`ok`, `degraded` if the history cannot be used, `unavailable` if no run can be started.",
    ]
    version: Annotated[str, "The gateway's version."]
    source: Annotated[HealthSource, "The default backend."]
    sources: Annotated[list[str], "The names of all backends, for `source` in requests."] = []
    mode: Annotated[str, Meta(extra_json_schema={"enum": list(MODES)}), "The default mode."] = "agent"
    model: Annotated[str, "The default model."] = ""
    runs: HealthRuns
    workspace: Annotated[str | UnsetType, "The default workspace; shown only if no API keys are configured."] = UNSET
    problem: Annotated[str | UnsetType, "What is wrong; omitted if nothing is, or if API keys are required."] = UNSET


# --- the queue ---------------------------------------------------------------------------------------


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
