"""The dependencies, installed, in; the list of components (SBOM), their licences and known vulnerabilities out."""

import json
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from msgspec import Struct

from tools.distribution.programs import REQUIREMENTS, ROOT, run
from tools.reference.markdown import page, table

_RELEASE = ROOT / ".venv-release" / "bin"
PAGE = ROOT / "docs" / "licences.md"

# Each may be used by an MIT-licensed program that is distributed without them, for the reason given.
_ACCEPTED = {
    **dict.fromkeys(
        ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "PSF-2.0"], "permissive"
    ),
    "MPL-2.0": "used unchanged; the terms apply to its own files",
    "LGPL-3.0-only": "used unchanged, as a library that can be replaced",
    "Cursor's terms": "not free software: you install it yourself, with the extra `sdk`, under Cursor's terms",
}
_CLASSIFIERS = {
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_READ_BY_HAND = {  # in their licence files
    "cursor-sdk": "Cursor's terms",
    "protobuf": "BSD-3-Clause",
    "quickjs-ng": "MIT",
    "resvg-py": "MIT",
}


class Component(Struct, frozen=True):
    name: str
    version: str
    licences: tuple[str, ...]
    is_optional: bool  # only an extra needs it


def components(environment: Path) -> list[Component]:
    needed = set(re.findall(r"^([\w.-]+)==", (REQUIREMENTS / "run.txt").read_text(), re.MULTILINE))
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    found = [
        Component(name, distribution.version, tuple(_licences(name, distribution)), name not in needed)
        for distribution in distributions(path=[str(packages)])
        for name in [re.sub(r"[-_.]+", "-", distribution.name).lower()]
    ]
    return sorted(found, key=lambda component: component.name)


def _licences(name: str, distribution: Distribution) -> Iterator[str]:
    if name in _READ_BY_HAND:
        yield _READ_BY_HAND[name]
        return
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        yield from re.split(r" (?:AND|OR) ", re.sub(r"[()]", "", metadata["License-Expression"]))
        return
    known = [_CLASSIFIERS[one] for one in metadata.get_all("Classifier") or [] if one in _CLASSIFIERS]
    yield from known or [str(metadata.json.get("license", "none given"))]


def check_licences(found: list[Component]) -> None:
    unknown = {one.name: one.licences for one in found if not set(one.licences) <= set(_ACCEPTED)}
    if unknown:
        raise SystemExit(f"nobody has decided whether these licences may be used: {unknown}; see {__file__}")


def licences_page(found: list[Component]) -> str:
    rows = [
        (
            one.name,
            one.version,
            " and ".join(f"`{licence}`" for licence in one.licences),
            "extra" if one.is_optional else "",
        )
        for one in found
    ]
    used = sorted({licence for one in found for licence in one.licences})
    text = page(
        "Licences",
        "cursor-gateway has the MIT licence. Its packages contain no code of others; installing them installs the\n"
        "packages below, in these or newer versions. `make dist` compares this list with what is installed, and fails\n"
        "if a licence is new. It is the list for Linux; other systems need fewer packages or other builds of them.",
        table(["licence", "why it is compatible"], [(f"`{one}`", _ACCEPTED[one]) for one in used]),
        table(["package", "version", "licence", "needed by"], rows),
        "`extra`: installed only with `[sdk]`, `[postgres]` or `[otel]`. `opentelemetry-api`, which `mcp` needs, has\n"
        "no exporter and sends nothing.",
    )
    return text.replace("`make docs`", "`make dist WRITE=1`", 1)


def write_bom(python: Path, target: Path, epoch: str) -> int:
    """CycloneDX, the same bytes for the same commit and versions. Returns how many components it lists."""
    run(
        [_RELEASE / "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible",
         "--of", "JSON", "-o", target, python],
        env={"SOURCE_DATE_EPOCH": epoch},
    )  # fmt: skip
    return len(json.loads(target.read_text())["components"])


def audit(requirements: Path) -> str:
    """Fails for a known vulnerability. Where its data cannot be had, says so: that proves nothing."""
    command = [_RELEASE / "pip-audit", "--progress-spinner=off", "--format=json", "--disable-pip", "--require-hashes"]
    ran = subprocess.run(
        [*map(str, command), "-r", str(requirements)], capture_output=True, text=True, timeout=300, check=False
    )
    try:
        listed = json.loads(ran.stdout)["dependencies"]
    except (ValueError, KeyError):
        return f"not done: {(ran.stderr.strip().splitlines() or ['pip-audit printed nothing'])[-1]}"
    vulnerable = [f"{one['name']} {one['version']}: {one['vulns']}" for one in listed if one.get("vulns")]
    if vulnerable:
        raise SystemExit("known vulnerabilities:\n" + "\n".join(vulnerable))
    skipped = sum("skip_reason" in one for one in listed)
    if skipped == len(listed):
        return "not done: the data about vulnerabilities cannot be had here"
    return f"no known vulnerability in {len(listed) - skipped} packages" + (f", {skipped} not found" if skipped else "")
