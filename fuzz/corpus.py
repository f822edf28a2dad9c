"""Inputs in; the few of them that together reach as much of the gateway's code as all, written down, out."""

from pathlib import Path

import coverage

from fuzz.cases import breach_of, corpus_name
from fuzz.target import CORPUS, Target

_MOST_FILES, _MOST_BYTES = 60, 24_000  # of one target
_LEAST_FILES, _SMALL = 16, 600  # where few lines say it all, others are kept: loops go round more often in them
_CODE = "*/cursor_gateway/*"


def write(target: Target, found: Path) -> str:
    """From the seeds, the corpus so far and what a run has found."""
    folder = CORPUS / target.name
    paths = [*folder.glob("*"), *found.glob("*")]
    inputs = sorted({*target.seeds(), *(path.read_bytes() for path in paths)}, key=lambda data: (len(data), data))
    kept = _chosen(target, [data for data in inputs if len(data) <= target.longest])
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*"):
        path.unlink()
    for data in kept:
        (folder / corpus_name(data)).write_bytes(data)
    return f"{target.name}: {len(kept)} of {len(inputs)} inputs, {sum(map(len, kept))} bytes"


def _chosen(target: Target, inputs: list[bytes]) -> list[bytes]:
    """The input that adds most for its size, again and again."""
    reached = {data: arcs for data in inputs if (arcs := _reached(target, data)) is not None}
    kept: list[bytes] = []
    known: set[tuple[str, int, int]] = set()
    size = 0
    while reached and len(kept) < _MOST_FILES:
        gains = {data: len(arcs - known) / (200 + len(data)) for data, arcs in reached.items()}
        best = max(gains, key=lambda data: gains[data])
        if not gains[best]:
            break
        arcs = reached.pop(best)
        if size + len(best) <= _MOST_BYTES:
            known |= arcs
            kept.append(best)
            size += len(best)
    others = [data for data in inputs if data in reached and len(data) <= _SMALL]
    missing = max(0, _LEAST_FILES - len(kept))
    return [*kept, *others[:: max(1, len(others) // max(1, missing))][:missing]]


def _reached(target: Target, data: bytes) -> set[tuple[str, int, int]] | None:
    """None for what breaks a law: that is kept elsewhere."""
    tracer = coverage.Coverage(data_file=None, branch=True, include=_CODE, config_file=False)
    tracer.start()
    try:
        breach = breach_of(target, data)
    finally:
        tracer.stop()
    if breach is not None:
        return None
    result = tracer.get_data()
    return {(file, *arc) for file in result.measured_files() for arc in result.arcs(file) or ()}
