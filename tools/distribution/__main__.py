"""`make dist`: the newest commit in; its packages and list of components in dist/, each tried, out."""

import tempfile
import time
from pathlib import Path

import click

from tools.distribution.building import Built, build
from tools.distribution.components import PAGE, audit, check_licences, components, licences_page, write_bom
from tools.distribution.contents import check_contents
from tools.distribution.installing import Start, Tried, measure_start, try_installations
from tools.distribution.programs import REQUIREMENTS, ROOT, new_environment, run
from tools.reference.markdown import table

_DIST = ROOT / "dist"


@click.command()
@click.option("--write", is_flag=True, help="Update docs/licences.md instead of comparing it.")
def main(write: bool) -> None:
    began = time.monotonic()
    built = build(_DIST)
    _say(f"built twice, the same bytes: {built.wheel.name}, {built.sdist.name}")
    if built.has_uncommitted:
        _say("uncommitted changes are not in the packages")
    check_contents(built.wheel, built.sdist)
    _say("the contents are those of the repository, and complete")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        listed, audited = _describe(built, folder, write)
        tried = []
        for one in try_installations(built, folder):
            _say(f"{one.way}: {one.result} ({one.seconds:.0f} s)")
            tried.append(one)
        start = measure_start(folder)
    report = _report(built, tried, start, listed, audited)
    (_DIST / "report.md").write_text(report)
    click.echo(f"\n{report}\nAll of it took {time.monotonic() - began:.0f} s.")


def _describe(built: Built, folder: Path, write: bool) -> tuple[int, str]:
    environment = folder / "components"
    python = new_environment(environment, REQUIREMENTS / "extras.txt")
    found = components(environment)
    check_licences(found)
    text = licences_page(found)
    if write:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        raise SystemExit("docs/licences.md is not up to date; run `make dist WRITE=1`")
    bom = built.wheel.with_name(built.sdist.name.replace(".tar.gz", ".cdx.json"))
    listed = write_bom(python, bom, run(["git", "log", "-1", "--format=%ct"], cwd=ROOT).strip())
    _say(f"{bom.name}: {listed} components; licences accepted")
    audited = audit(REQUIREMENTS / "extras.txt")
    _say(f"audit: {audited}")
    return listed, audited


def _report(built: Built, tried: list[Tried], start: Start, listed: int, audited: str) -> str:
    sizes = [
        ("wheel", _size(built.wheel.stat().st_size)),
        ("sdist", _size(built.sdist.stat().st_size)),
        ("installed, without dependencies", _size(start.installed_bytes)),
        ("environment with all dependencies and extras", _size(start.environment_bytes)),
        ("`cursor-gateway --help`, median", f"{start.help_ms:.0f} ms"),
        ("`cursor-gateway serve` until it listens, median", f"{start.serve_ms:.0f} ms"),
        ("components in the SBOM", str(listed)),
        ("`pip-audit`", audited),
    ]
    ways = [(one.way, f"{one.seconds:.0f} s", one.result) for one in tried]
    return f"Commit {built.commit}\n\n{table(['', ''], sizes)}\n\n{table(['installed with', 'took', 'result'], ways)}\n"


def _size(number: int) -> str:
    return f"{number / 1e6:.1f} MB"


def _say(line: str) -> None:
    click.echo(f"ok: {line}")


if __name__ == "__main__":
    main()
