"""A built-in recording: a Flask app gets JWT authentication, in documents of all ten types."""

from importlib.resources import files


def recording() -> bytes:
    """What `cursor-agent -p --output-format stream-json --stream-partial-output` writes in such a run."""
    return files(__name__).joinpath("jwt_authentication.ndjson").read_bytes()
