"""The tool that all drivers offer: a city in, its weather out, with a line for each time that it ran."""

import json
import sys
from pathlib import Path

from typing_extensions import TypedDict


class Question(TypedDict):
    url: str
    prompt: str
    way: str  # in which the client is used


def get_weather(city: str) -> str:
    """The weather in a city."""
    with Path("calls.txt").open("a", encoding="utf-8") as calls:
        calls.write(f"{city}\n")
    found: dict[str, str] = json.loads(Path("weather.json").read_text(encoding="utf-8"))
    return found[city]


def asked() -> Question:
    question: Question = json.load(sys.stdin)
    return question


def answer(text: str) -> None:
    json.dump(text, sys.stdout)
