"""A record of Agent Trace in; the same, if it is valid by the specification, out."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from jsonschema import Draft202012Validator

_SCHEMA = json.loads(Path(__file__).with_suffix(".schema.json").read_text())


def valid_record(data: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(data)
    Draft202012Validator.check_schema(_SCHEMA)
    Draft202012Validator(_SCHEMA).validate(record)
    UUID(record["id"])  # as the schema's formats say
    assert datetime.fromisoformat(record["timestamp"]).tzinfo is not None
    assert record["version"] == "0.1.0"
    for file in record["files"]:
        assert not file["path"].startswith("/")
        for conversation in file["conversations"]:
            for url in (conversation["url"], *(one["url"] for one in conversation["related"])):
                assert urlsplit(url).scheme in ("http", "https")
            assert all(one["start_line"] <= one["end_line"] for one in conversation["ranges"])
    return record


def lines(record: dict[str, Any], path: str) -> dict[int, str]:
    """The run that wrote each line."""
    (file,) = [file for file in record["files"] if file["path"] == path]
    return {
        number: conversation["related"][0]["url"].rpartition("/")[2]
        for conversation in file["conversations"]
        for one in conversation["ranges"]
        for number in range(one["start_line"], one["end_line"] + 1)
    }
