"""The state of a gateway, as `/health` reports it. Older gateways leave out what has a default."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.model.documents import MODES


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
