"""The tool that all drivers offer: a city in, its weather out, with a line for each time that it ran; and how they are
asked: questions as lines of JSON on stdin, an answer to each on stdout."""

import json
import sys
import traceback
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from typing_extensions import TypedDict


class Question(TypedDict):
    url: str
    prompt: str
    way: str  # in which the client is used
    folder: str  # of the client


def get_weather(city: str) -> str:
    """The weather in a city."""
    with Path("calls.txt").open("a", encoding="utf-8") as calls:
        calls.write(f"{city}\n")
    found: dict[str, str] = json.loads(Path("weather.json").read_text(encoding="utf-8"))
    return found[city]


def serve(ask: Callable[[Question], str]) -> None:
    for line in sys.stdin:
        question: Question = json.loads(line)
        try:
            with chdir(question["folder"]):
                reply = {"answer": ask(question)}
        except Exception:  # noqa: BLE001 # the test that asked fails; the next one may ask
            reply = {"error": traceback.format_exc()}
        sys.stdout.write(f"{json.dumps(reply)}\n")
        sys.stdout.flush()
