"""The conformance suite of MCP against `/mcp`, for each version of the protocol."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.mcp_conformance import conformance_proxy
from tests.clients.programs import PACKAGES, TIMEOUT, needed, node
from tests.gateways import RunningGateway, running_gateway

# By scenario and version: the checks that cannot pass, because they are about tools or features that we do not have.
SCENARIOS: dict[tuple[str, str], set[str]] = {
    ("server-initialize", "2025-06-18"): set(),
    ("server-initialize", "2025-11-25"): set(),
    ("server-session-lifecycle", "2025-03-26"): set(),
    ("server-session-lifecycle", "2025-11-25"): set(),
    ("server-stateless", "2026-07-28"): {
        "sep-2575-server-rejects-undeclared-capability",  # needs a tool that cannot do without sampling
        "sep-2575-missing-capability-http-400",
    },
    ("ping", "2025-11-25"): set(),
    ("tools-list", "2025-06-18"): set(),
    ("tools-list", "2026-07-28"): set(),
    ("tools-call-simple-text", "2025-06-18"): set(),
    ("tools-call-simple-text", "2026-07-28"): set(),
    ("tools-call-error", "2025-11-25"): set(),
    ("tools-call-error", "2026-07-28"): set(),
    ("tools-call-with-progress", "2025-11-25"): set(),
    ("tools-call-with-progress", "2026-07-28"): set(),
    ("tools-call-elicitation", "2025-11-25"): set(),
    ("server-sse-polling", "2025-11-25"): set(),
    ("server-sse-multiple-streams", "2025-11-25"): set(),
    ("server-sse-multiple-streams", "2026-07-28"): set(),
    ("caching", "2026-07-28"): {
        "sep-2549-prompts-list-caching-hints",  # there are no prompts and no resources
        "sep-2549-resources-list-caching-hints",
        "sep-2549-resources-templates-list-caching-hints",
    },
    ("input-required-result-basic-elicitation", "2026-07-28"): {
        "sep-2322-elicitation-incomplete"  # the suite chooses the key of the form
    },
    ("input-required-result-request-state", "2026-07-28"): set(),
    ("input-required-result-multi-round", "2026-07-28"): set(),
    ("input-required-result-missing-input-response", "2026-07-28"): set(),
    ("input-required-result-result-type", "2026-07-28"): set(),
    ("input-required-result-unsupported-methods", "2026-07-28"): set(),
    ("input-required-result-tampered-state", "2026-07-28"): set(),
    ("input-required-result-validate-input", "2026-07-28"): set(),
    ("tasks-lifecycle", ""): {"sep-2663-tasks-get-status-failed"},  # no run ends with an error of the protocol
    ("tasks-capability-negotiation", ""): set(),
    ("tasks-wire-fields", ""): set(),
    ("tasks-request-state-removal", ""): set(),
    ("tasks-mrtr-input", ""): set(),
    ("tasks-request-headers", ""): {"tasks-headers-tolerate-mcp-method-on-tools-call"},  # expects a certain text
    ("tasks-dispatch-and-envelope", ""): set(),
}


@pytest.fixture(scope="module")
def quiet_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("conformance")) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(quiet_gateway: RunningGateway) -> Iterator[str]:
    with conformance_proxy(quiet_gateway.url) as url:
        yield url


@pytest.mark.parametrize(("scenario", "version"), SCENARIOS)
def test_the_conformance_suite_passes(tmp_path: Path, proxy: str, scenario: str, version: str) -> None:
    failed = failed_checks(tmp_path, proxy, scenario, version)
    assert failed == SCENARIOS[scenario, version]


@pytest.mark.parametrize(
    ("scenario", "version"),
    [
        ("dns-rebinding-protection", "2025-11-25"),
        ("dns-rebinding-protection", "2026-07-28"),
        ("http-header-validation", "2026-07-28"),
    ],
)
def test_headers_are_checked(tmp_path: Path, quiet_gateway: RunningGateway, scenario: str, version: str) -> None:
    """Without the proxy, which has another name, and changes headers."""
    assert not failed_checks(tmp_path, f"{quiet_gateway.url}/mcp", scenario, version)


def failed_checks(folder: Path, url: str, scenario: str, version: str) -> set[str]:
    suite = needed(PACKAGES / "@modelcontextprotocol/conformance/dist/index.js")
    options = ["--scenario", scenario, "-o", str(folder), *(["--spec-version", version] if version else [])]
    command: list[str | Path] = [node(), suite, "server", "--url", url, *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    written = list(folder.glob("*/checks.json"))
    assert len(written) == 1, ended.stdout + ended.stderr
    checks = json.loads(written[0].read_text())
    assert any(check["status"] == "SUCCESS" for check in checks), ended.stdout
    return {check["id"] for check in checks if check["status"] == "FAILURE"}
