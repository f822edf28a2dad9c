"""Make this process a member of a cluster."""

import logging
import socket
from collections.abc import Callable
from importlib.metadata import version
from secrets import token_hex

from cursor_gateway.cluster.front import FrontLimits
from cursor_gateway.cluster.members import Timing
from cursor_gateway.cluster.node import Node, NodeOptions
from cursor_gateway.errors import SettingsError
from cursor_gateway.runs.run_service import Defaults
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.settings import Settings, subset
from cursor_gateway.sources.ledger import LostAgents
from cursor_gateway.store.base import Store
from cursor_gateway.store.cluster import ClusterStore, Member

_log = logging.getLogger(__name__)


def cluster_of(store: Store) -> ClusterStore:
    from cursor_gateway.store.postgres.cluster import PostgresCluster
    from cursor_gateway.store.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    return PostgresCluster(store)


def own_member(settings: Settings, process: str, *, runs_agents: bool, takes_work: bool = False) -> Member:
    """`process` names it on its machine. Without `takes_work`, it runs only what it starts itself."""
    if settings.lease_seconds < 2 * settings.beat_seconds:
        raise SettingsError("`lease_seconds` must be at least twice `beat_seconds`.", param="lease_seconds")
    host = socket.gethostname()
    is_own_gateway = runs_agents and settings.role == "front"  # a command that runs its own agents
    return Member(
        id=f"{host}-{process}-{token_hex(4)}",
        role="all" if is_own_gateway else settings.role,
        host=host,
        process=process,
        volumes=[host, *settings.volumes] if runs_agents else [],
        labels=settings.labels if runs_agents else (),
        capacity=settings.max_runs if runs_agents and takes_work else 0,
        version=version("cursor-gateway"),
        is_draining=runs_agents and not takes_work,
    )


def _fault(error: Exception) -> None:
    _log.error("Internal error in the cluster; its traceback follows.", exc_info=error)


def node_of(
    settings: Settings,
    own: Member,
    store: Store,
    local: LocalRunService | None,
    defaults: Defaults,
    now_ms: Callable[[], int],
    warn: Callable[[str], None],
    agents: LostAgents | None = None,
) -> Node:
    options = NodeOptions(
        own=own,
        timing=subset(settings, Timing),
        limits=subset(settings, FrontLimits),
        defaults=defaults,
        api_keys=settings.api_keys.keys(),
    )
    return Node(options, cluster_of(store), store, local, now_ms, warn, _fault, agents)
