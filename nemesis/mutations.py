"""Rules of the protocol in; each broken in a copy of the sources, and the seed whose history shows it, out.

`python -m nemesis.mutations [WORD…]` tries those with a word in their name; `--write` keeps the table for
docs/reliability.md. It takes several minutes, so CI does not run it; a test keeps the table applicable.
"""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from shutil import copytree, ignore_patterns

import click
from msgspec import Struct
from msgspec.structs import replace

from nemesis.cluster import LEASE
from nemesis.faults import MEMBERS, Fault, Kind, plan
from nemesis.trial import Trial, Verdict, run

_ROOT = Path(__file__).resolve().parents[1]
_SECONDS = 20.0
_SEEDS = 8  # that are tried before a mutation counts as missed
PART = _ROOT / "docs" / "parts" / "cluster_mutations.md"


class Change(Struct, frozen=True):
    file: str  # below src/cursor_gateway
    old: str  # occurs once
    new: str


class Mutation(Struct, frozen=True, kw_only=True):
    rule: str  # what the changes break
    changes: tuple[Change, ...]
    kinds: tuple[Kind, ...]  # of faults that can show it; none: it shows by itself
    delays: Mapping[str, float] = {}
    pauses: float = 1.0  # between faults
    leases: tuple[float, float] | None = None  # how long faults last


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        rule="a write is refused when its epoch is old",
        changes=(
            Change("store/postgres/events.py", "runs.epoch = given.epoch AND ", ""),
            Change("store/postgres/writing.py", "id = %(id)s AND epoch = %(epoch)s AND last", "id = %(id)s AND last"),
            Change("store/sql.py", "if place.epoch != lease.epoch:", "if False:"),
            # Otherwise what an old writer sends is refused because it differs from what is stored.
            Change(
                "store/postgres/writing.py",
                "        batches.check_repeated(first_number, known, stored)\n",
                "",
            ),
        ),
        kinds=("lost beats",),
    ),
    Mutation(
        rule="a hint is sent after the commit",
        changes=(
            Change(
                "store/postgres/store.py",
                "            owner, prompts = await self._begun(lease.run_id, end)\n",
                '            self.written(NewEvents(lease.run_id, first_number, Raw(data or b"[]")))\n'
                "            await asyncio.sleep(0.1)\n"
                "            owner, prompts = await self._begun(lease.run_id, end)\n",
            ),
            Change("store/postgres/store.py", "import secrets\n", "import asyncio\nimport secrets\n"),
            Change(
                "store/postgres/store.py",
                "        if isinstance(written, Stored):\n"
                '            self.written(NewEvents(lease.run_id, first_number, Raw(data or b"[]")))\n'
                "        elif",
                "        if",
            ),
        ),
        kinds=(),
    ),
    Mutation(
        rule="an event is shown after the commit",
        changes=(Change("runs/log.py", "return not self._is_lost\n", "return True\n"),),
        kinds=("lost beats",),
    ),
    Mutation(
        rule="what the database did not accept is sent again",
        changes=(
            Change(
                "runs/log.py",
                "        except StoreUnavailable:\n            self._put_off()\n            return False\n"
                "        except Exception as error:",
                "        except StoreUnavailable:\n            del self.events[self.stored - self.dropped : -1]\n"
                "            self._put_off()\n            return False\n        except Exception as error:",
            ),
        ),
        kinds=("database away",),
    ),
    Mutation(
        rule="a member's death is judged by the watcher's monotonic clock",
        changes=(
            Change(
                "cluster/members.py", "self._liveness.look(beats, monotonic())", "self._liveness.look(beats, time())"
            ),
            Change("cluster/members.py", "from time import monotonic\n", "from time import monotonic, time\n"),
        ),
        kinds=("clock jump", "late beats"),
        pauses=0.2,  # a clock must jump while a beat is late, but by less than a lease
        leases=(0.5, 0.9),
    ),
    Mutation(
        rule="a member is removed only if its beat has not changed",
        changes=(
            Change(
                "store/postgres/cluster.py",
                'await connection.execute("DELETE FROM members WHERE id = %s AND beat = %s", [id, beat])',
                'await connection.execute("DELETE FROM members WHERE id = %s", [id])',
            ),
        ),
        # A beat must arrive between a watcher's last look and its takeover, which a slow link keeps apart.
        kinds=("cut off runner",),
        leases=(1.0, 1.8),
        delays=dict.fromkeys(MEMBERS, 0.15),
    ),
    Mutation(
        rule="a runner ends the agents of one that has lost its runs before it starts an agent",
        changes=(
            Change("runs/starter.py", "            await self._parts.lost_agents.end()\n", "            pass\n"),
            Change("cluster/members.py", "                await self._agents.end_of(id)\n", "                pass\n"),
        ),
        kinds=("freeze runner",),  # with both runners on one host, which odd seeds have
    ),
)


class Caught(Struct, frozen=True):
    mutation: Mutation
    verdict: Verdict | None  # of the seed that showed it; None: it was missed


def mutated(mutation: Mutation, folder: Path) -> None:
    """Raises `ValueError` for a row that is out of date."""
    for change in mutation.changes:
        file = folder / "cursor_gateway" / change.file
        text = file.read_text()
        if (count := text.count(change.old)) != 1:
            raise ValueError(f"{change.file}: {mutation.rule}: {change.old!r} occurs {count} times; update the table.")
        file.write_text(text.replace(change.old, change.new))


def faults_of(mutation: Mutation, seed: int) -> list[Fault]:
    if not mutation.kinds:
        return []
    return plan(seed, _SECONDS, LEASE, mutation.kinds, pauses=mutation.pauses, leases=mutation.leases)


async def caught(mutation: Mutation) -> Caught:
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        source = Path(folder).resolve() / "src"
        copytree(_ROOT / "src", source, ignore=ignore_patterns("__pycache__"))
        mutated(mutation, source)
        for seed in range(2, 2 + _SEEDS):
            faults = faults_of(mutation, seed)
            trial = Trial(seed=seed, seconds=_SECONDS, source=source, faults=faults, delays=mutation.delays)
            verdict = await run(trial)
            click.echo(f"  seed {seed}: {verdict.summary}: {len(verdict.violations)} violations")
            if verdict.violations and not (await run(replace(trial, source=None))).violations:  # without the change
                return Caught(mutation, verdict)
    return Caught(mutation, None)


@click.command()
@click.argument("words", nargs=-1)
@click.option("--write", is_flag=True, help="Write the table for docs/reliability.md; needs all mutations.")
def main(words: tuple[str, ...], write: bool) -> None:
    """Break one rule of the protocol at a time; the laws must find it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the clusters would outlive it
    chosen = [one for one in MUTATIONS if all(word.lower() in one.rule for word in words)]
    found = []
    for mutation in chosen:
        click.echo(mutation.rule)
        one = asyncio.run(caught(mutation))
        click.echo(f"  caught: {one.verdict.violations[0]}" if one.verdict else "  MISSED")
        found.append(one)
    if write:
        PART.write_text(table(found))
    if any(one.verdict is None for one in found):
        sys.exit(1)


def table(found: list[Caught]) -> str:
    rows = []
    for one in found:
        if one.verdict is None:
            rows.append(f"| {one.mutation.rule} | missed | |")
        else:
            law = one.verdict.violations[0].law
            faults = ", ".join(one.mutation.kinds) or "none"
            rows.append(f"| {one.mutation.rule} | seed {one.verdict.seed}; faults: {faults} | {law} |")
    lines = "\n".join(rows)
    return (
        "### Deliberately broken rules\n\n"
        f"On {date.today()}, each rule was broken in a copy of the sources, to check that a law detects it "
        "(`python -m nemesis.mutations --write`).\nThe same seed without the change broke no law.\n\n"
        f"| rule | found with | law that was broken |\n|---|---|---|\n{lines}\n"
    )


if __name__ == "__main__":
    main()
