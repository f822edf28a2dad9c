"""Built-in recordings: what a run looks like, without an agent."""

from importlib.resources import files

# In this order: what no prompt asks for is answered with the first.
_NAMES = ("hello", "explain", "failing_tests", "plan", "question", "jwt_authentication", "this_repo")
# What follows the answer to the question, or the decision about the plan.
FOLLOW_UPS = ("database_sqlite", "database_postgresql", "plan_accepted", "plan_rejected")


def recording() -> bytes:
    """What `cursor-agent -p --output-format stream-json --stream-partial-output` writes in a run that shows
    documents of all ten types: a Flask app gets JWT authentication.
    """
    return _read("jwt_authentication")


def recordings() -> dict[str, bytes]:
    """All of them, by name."""
    return {name: _read(name) for name in (*_NAMES, *FOLLOW_UPS)}


def _read(name: str) -> bytes:
    return files(__name__).joinpath(f"{name}.ndjson").read_bytes()
