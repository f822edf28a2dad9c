"""The pages of a folder in; its index out."""

from pathlib import Path

from tools.reference.markdown import page, table

_DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"

_REFERENCE = {
    "cli.md": "every command with its options",
    "documents.md": "the response, each document type and its fields",
    "events.md": "the events of a stream, with an example",
    "errors.md": "every error code with its HTTP status",
    "failures.md": "what each API and client makes of the agent's failures",
    "settings.md": "every setting with its type, default and environment variable",
    "tools.md": "how the agent's tools appear in documents",
    "open-calls.md": "the states of a run that waits for tool results",
    "modules.md": "every module of the package",
    "structure.md": "how large the source is, and how large it may be",
    "schema.json": "the documents as JSON Schema",
    "documents.ts": "the documents as TypeScript types",
}


def reference_index() -> str:
    return page(
        "Reference",
        "Generated from the source. A running gateway also describes its HTTP API at `/docs` and `/openapi.json`.",
        table(["page", "contents"], [(f"[{name}]({name})", contents) for name, contents in _REFERENCE.items()]),
    )


def decisions_index() -> str:
    rows = []
    for path in sorted(_DECISIONS.glob("2*.md"), reverse=True):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        rows.append((path.name[:10], f"[{title}]({path.name})"))
    return page(
        "Decisions",
        "Why the gateway is built as it is: the context of each decision, what was decided, and what follows from it.",
        table(["date", "decision"], rows),
    )
