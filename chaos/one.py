"""A fault by its module and number in; whether it held, as a line of JSON, out. A process of its own for each."""

import sys
import time
import traceback
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from chaos.place import Place
from chaos.table import Skipped, faults_of

Outcome: TypeAlias = Literal["green", "red", "skipped"]


class Verdict(Struct, frozen=True):
    outcome: Outcome
    told: str  # the proof, what went wrong, or why it was skipped
    seconds: float
    trace: str = ""


def judge(module: str, number: int, place: Place) -> Verdict:
    began = time.monotonic()
    outcome: Outcome = "green"
    trace = ""
    try:
        told = faults_of(module)[number].prove(place)
    except Skipped as skipped:
        outcome, told = "skipped", str(skipped)
    except Exception as error:  # noqa: BLE001 -- whatever was raised, it did not hold
        outcome, told, trace = "red", f"{type(error).__name__}: {error}", traceback.format_exc()
    return Verdict(outcome, told, time.monotonic() - began, trace)


def main() -> None:
    module, number, folder, form = sys.argv[1:]
    verdict = judge(module, int(number), Place(Path(folder), form == "short"))
    sys.stdout.buffer.write(msgspec.json.encode(verdict) + b"\n")


if __name__ == "__main__":
    main()
