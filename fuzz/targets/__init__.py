"""The table of what is fuzzed, by name. A module is imported when one of its targets is asked for."""

from importlib import import_module

from fuzz.target import Target

NAMES: dict[str, str] = {
    name: module
    for module, names in {
        "streams": ("lines", "sse", "frames", "acp", "sdk"),
        "texts": ("markdown", "html", "documents", "cutting", "words", "work"),
        "requests": ("chat_request", "answer_request", "openai_request", "schemas", "native_requests"),
        "places": ("settings", "search", "paths"),
    }.items()
    for name in names
}


def target_named(name: str) -> Target:
    found: dict[str, Target] = {target.name: target for target in import_module(f"fuzz.targets.{NAMES[name]}").TARGETS}
    return found[name]
