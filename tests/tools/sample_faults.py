"""Faults of which one holds, and the others do not, each in its own way."""

import os
import subprocess
import time

from chaos.place import Place
from chaos.table import Skipped, fault


@fault("it holds", provoked="By nothing.", holds="All.")
def holds(place: Place) -> str:
    assert not list(place.folder.iterdir())
    return f"{place.size(100, 3)} | of\n{place.size(100, 3)}"


@fault("it does not hold", provoked="By nothing.", holds="Nothing.")
def fails(place: Place) -> str:
    raise AssertionError("there are [2] of them")


@fault("it cannot be provoked", provoked="By no means.", holds="Nobody knows.")
def skipped(place: Place) -> str:
    raise Skipped("the moon is not full")


@fault("it hangs", provoked="By sleep.", holds="Nothing.", seconds=2)
def hangs(place: Place) -> str:
    time.sleep(600)
    return "never"


@fault("it leaves somebody behind", provoked="By a daemon.", holds="Nothing.")
def leaves(place: Place) -> str:
    environment = {"HOME": str(place.folder / "home"), "PATH": os.defpath}
    subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    return "all is well"


@fault("it ends the process", provoked="By an exit.", holds="Nothing.")
def exits(place: Place) -> str:
    os._exit(3)
