"""One more scenario of the stand-in, for the programs that `player.py` installs; imported, it is there."""

import json
import os
import time

from tests.agent.turn import Turn, runs


@runs("play")
def play(turn: Turn) -> None:
    turn.begin()
    with open(turn.text("file", ""), "rb") as lines:
        for line in lines:
            if line.startswith(b'{"wait"'):
                _wait_for(json.loads(line)["wait"])
            else:
                turn.agent.raw(line)


def _wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)
