"""A seed in; what goes wrong, where, when and for how long, out. The same seed always gives the same plan."""

from random import Random
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

Kind: TypeAlias = Literal[
    "kill front",
    "kill runner",
    "kill database",
    "database away",
    "fail over",
    "freeze runner",
    "freeze front",
    "cut off runner",
    "cut off front",
    "partition runner",
    "slow link",
    "lost hints",
    "lost beats",
    "late beats",
    "reset connections",
    "clock jump",
    "full disk",
    "restart",
    "other version",
]

KINDS: tuple[Kind, ...] = get_args(Kind)
DATABASE = "database"
MEMBERS = ("front-1", "front-2", "runner-1", "runner-2")
_FIRST_AT = 1.5  # seconds: the first runs have begun
_GAP = 0.5  # seconds between two faults of one target


class Fault(Struct, frozen=True):
    kind: Kind
    target: str
    at: float  # seconds after the beginning
    seconds: float  # until it is over

    def __str__(self) -> str:
        return f"{self.at:5.1f} s  {self.kind} ({self.target}) for {self.seconds:.1f} s"


def plan(
    seed: int,
    seconds: float,
    lease: float,
    kinds: tuple[Kind, ...] = KINDS,
    *,
    pauses: float = 1.0,
    leases: tuple[float, float] | None = None,
) -> list[Fault]:
    """Every kind comes first in one of as many seeds as there are kinds; the others are chosen at random.

    Faults overlap, but each target has one at a time. With shorter `pauses`, there are more of them. `leases` says how
    long they last; without it, each kind decides.
    """
    random = Random(seed)
    found: list[Fault] = []
    free_at = dict.fromkeys((*MEMBERS, DATABASE), _FIRST_AT)
    at, kind = _FIRST_AT, kinds[seed % len(kinds)]
    while at < seconds:
        targets = [target for target in _targets(kind) if free_at[target] <= at]
        if targets:
            target = random.choice(targets)
            lasts = _duration(kind, lease, random) if leases is None else random.uniform(*leases) * lease
            fault = Fault(kind, target, at, round(lasts, 2))
            found.append(fault)
            free_at[fault.target] = at + fault.seconds + _GAP
            if kind == "fail over":  # only the first server's disk is small
                kinds = tuple(one for one in kinds if one != "full disk")
        at = round(at + random.uniform(0.3, 1.5) * lease * pauses, 2)
        kind = random.choice(kinds)
    return found


def _targets(kind: Kind) -> tuple[str, ...]:
    match kind:
        case "kill front" | "freeze front" | "cut off front":
            return MEMBERS[:2]
        case "kill runner" | "freeze runner" | "cut off runner" | "partition runner":
            return MEMBERS[2:]
        case "kill database" | "database away" | "fail over" | "full disk":
            return (DATABASE,)
        case (
            "slow link"
            | "lost hints"
            | "lost beats"
            | "late beats"
            | "reset connections"
            | "clock jump"
            | "restart"
            | "other version"
        ):
            return MEMBERS


def _duration(kind: Kind, lease: float, random: Random) -> float:
    match kind:
        case "kill front" | "kill runner" | "restart" | "other version":
            return random.uniform(0.1, 1.5)  # then it is started again
        case "kill database" | "fail over":
            return random.uniform(0.0, 0.5)
        case "database away":
            return 3 * lease
        case "freeze runner" | "freeze front" | "lost beats":
            return random.uniform(1.2, 2.5) * lease
        case "late beats":
            return random.uniform(0.3, 0.6) * lease  # nobody may be taken for dead
        case "cut off runner" | "cut off front":
            return random.uniform(0.5, 2.5) * lease
        case "partition runner":
            return (random.uniform(0.5, 2.5) if random.random() < 0.7 else 6) * lease  # TCP gives up after 10 s
        case "slow link" | "lost hints" | "clock jump" | "full disk":
            return random.uniform(1.0, 2.0) * lease
        case "reset connections":
            return 0.0
