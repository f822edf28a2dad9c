"""A turn in; text, thinking and what the agent knows about itself, out."""

import json

from tests.agent.turn import Request, Turn, answers, pieces, runs

_SENTENCE = "The quick brown fox jumps over the lazy dog, naïve as ever. "
PROSE = "Here is what I found, but I would rather describe it in words than in data."


@answers("")
def said_back(turn: Turn) -> None:
    turn.say(f"You said: {turn.prompt.strip()[-300:]}")


@answers("text")
def text(turn: Turn) -> None:
    chunks = turn.number("chunks", 5)
    length = turn.number("length", chunks * 12)
    whole = (_SENTENCE * (length // len(_SENTENCE) + 1))[:length]
    for nth in range(chunks):
        turn.pause("delay_ms")
        turn.agent.say(whole[nth * length // chunks : (nth + 1) * length // chunks])


@answers("say")
def say(turn: Turn) -> None:
    for piece in pieces(turn.request.body, turn.number("size", 3)):
        turn.agent.say(piece)


@answers("thinking")
def thinking(turn: Turn) -> None:
    turn.think("The user wants an answer.\n\nI should think about it first.")
    turn.say("I have thought once. ")
    turn.think("And now a second time, with 'quotes' and é.")
    turn.say("I have thought twice.")


@answers("empty")
def empty(turn: Turn) -> None:
    pass


@answers("fences")
def fences(turn: Turn) -> None:
    turn.say("Add a function:\n\n```python\ndef double(n: int) -> int:\n    return 2 * n\n```\n\n")
    turn.say("It is called here:\n\n```12:14:src/app.py\ntotal = 0\nfor n in numbers:\n    total += double(n)\n```\n\n")
    turn.say("Run it:\n\n```\npython -m app\n```\n")


@answers("json")
def exact_json(turn: Turn) -> None:
    turn.say(_first_json(turn.request.body))


@answers("json-bad-then-good")
def json_bad_then_good(turn: Turn) -> None:
    earlier = [Request(one["prompt"]) for one in turn.history]
    asked = next((request for request in earlier if request.name == "json-bad-then-good"), None)
    if asked is not None:
        turn.say(_first_json(asked.body))
    elif PROSE in turn.prompt:  # a client that resends the transcript instead of resuming
        turn.say(_first_json(turn.request.body))
    else:
        turn.say(PROSE)


def _first_json(text: str) -> str:
    """Whatever a client writes after it is not part of it."""
    start = len(text) - len(text.lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return text
    return text[start:end]


@runs("usage")
def usage(turn: Turn) -> None:
    turn.begin()
    turn.say("That was not cheap.")
    turn.finish(counts=not turn.number("omit", 0))  # builds of early 2026 count nothing


@answers("echo-env")
def echo_env(turn: Turn) -> None:
    turn.say(json.dumps(turn.invocation["environment"]))


@answers("echo-args")
def echo_args(turn: Turn) -> None:
    turn.say(json.dumps({name: turn.invocation[name] for name in ("argv", "cwd", "workspace", "source")}))


@answers("history")
def history(turn: Turn) -> None:
    prompts = [one["prompt"] for one in turn.history]
    known = {"turns": len(turn.history), "prompts": prompts, "answers": [one["answer"] for one in turn.history]}
    turn.say(json.dumps(known, ensure_ascii=False))
