"""One target, fuzzed by atheris for so many seconds: `python -m fuzz.one TARGET SECONDS FOLDER SEEDS`.

Inputs that reach something new are written to the folder; what breaks a law goes to `fuzz/found`, made smaller, one
case for each place. Only what ends the process (no answer in time, too much memory) is libFuzzer's own to keep.
"""

import random
import sys
from pathlib import Path

import atheris

from fuzz.cases import Breach, breach_of, keep, reduced
from fuzz.mutations import Mutator
from fuzz.target import CORPUS, FOUND
from fuzz.targets import target_named

_SLOWEST = 20  # seconds for one input; the instrumented code is several times slower than the real one
_MOST_MEGABYTES = 1024


def main() -> None:
    name, seconds, folder, seeds = sys.argv[1:]
    with atheris.instrument_imports(include=["cursor_gateway"]):
        target = target_named(name)
    known: set[Breach] = set()

    def run(data: bytes) -> None:
        breach = breach_of(target, data)
        if breach is not None and breach not in known:
            known.add(breach)
            path = keep(target, reduced(target, data, breach), breach)
            sys.stderr.write(f"BREACH {breach.name} {path.name}\n")

    mutator = Mutator(target.shape, target.seeds())

    def mutated(data: bytes, longest: int, seed: int) -> bytes:
        roll = random.Random(seed)
        return mutator.mutated(data, roll, lambda part: bytes(atheris.Mutate(part, longest)))[:longest]

    folders = [str(path) for path in (Path(folder), Path(seeds), CORPUS / name, FOUND / name) if path.is_dir()]
    options = {
        "max_total_time": seconds,
        "max_len": target.longest,
        "timeout": _SLOWEST,
        "rss_limit_mb": _MOST_MEGABYTES,
        "artifact_prefix": f"{folder}/ended-",
        "print_final_stats": 1,
        "seed": random.SystemRandom().randrange(1, 2**31),
    }
    arguments = [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), *folders]
    atheris.Setup(arguments, run, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
