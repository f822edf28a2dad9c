"""The state of a gateway, as `/health` reports it. Older gateways leave out what has a default."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.model.documents import Mode


class HealthSource(Struct, frozen=True):
    """The backend."""

    name: Annotated[
        str, Meta(description="`cli` for Cursor's agent, `replay` for recordings, `demo` for the built-in one.")
    ]
    detail: Annotated[
        str, Meta(description="The program and version, or the recordings; empty if API keys are configured.")
    ]
    demo: Annotated[bool, Meta(description="Whether the gateway runs as a demo.")] = False


class HealthRuns(Struct, frozen=True):
    """The load."""

    running: Annotated[int, Meta(description="Active runs.")]
    limit: Annotated[int, Meta(description="The maximum; further runs get 429.")]


class Health(Struct, frozen=True, kw_only=True):
    """The state of the gateway."""

    status: Annotated[
        str,  # to readers: a newer gateway may have others
        Meta(
            description="`ok`, `degraded` if the history cannot be used, `unavailable` if no run can be started.",
            extra_json_schema={"enum": ["ok", "degraded", "unavailable"]},
        ),
    ]
    version: Annotated[str, Meta(description="The gateway's version.")]
    source: Annotated[HealthSource, Meta(description="The default backend.")]
    sources: Annotated[list[str], Meta(description="The names of all backends, for `source` in requests.")] = []
    mode: Annotated[Mode, Meta(description="The default mode.")] = "agent"
    model: Annotated[str, Meta(description="The default model.")] = ""
    runs: HealthRuns
    workspace: Annotated[
        str | UnsetType, Meta(description="The default workspace; shown only if no API keys are configured.")
    ] = UNSET
    problem: Annotated[
        str | UnsetType, Meta(description="What is wrong; omitted if nothing is, or if API keys are required.")
    ] = UNSET
