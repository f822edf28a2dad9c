"""Words and rows in, Markdown out."""

from collections.abc import Iterable, Sequence

from cursor_gateway.schema import Json, is_extension

NOTE = "<!-- Written by `make docs` from the source; change that, not this page. -->"


def page(title: str, *parts: str) -> str:
    return "\n\n".join([NOTE, f"# {title}", *(part.strip("\n") for part in parts)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns are padded, so that the source reads as well as the page."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [heads, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    rule = " | ".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in [lines[0], rule, *lines[1:]])


def code(text: str, language: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.rstrip().splitlines())
    return f"```{language}\n{lines}\n```"


def fields_table(record: Json) -> str:
    rows = [
        (f"`{name}`", type_words(field), _there(field, is_required=name in record["required"]), _meaning(field))
        for name, field in record["properties"].items()
    ]
    return table(["field", "type", "present", "meaning"], rows)


def _there(field: Json, *, is_required: bool) -> str:
    if is_required:
        return "always"
    return "extension" if is_extension(field) else "optional"


def _meaning(field: Json) -> str:
    text = str(field.get("description", "")).removeprefix("Extension: ")
    return text[:1].upper() + text[1:]


def type_words(schema: Json) -> str:
    match schema:
        case {"$ref": str(ref)}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"const": value}:
            return f'`"{value}"`'
        case {"enum": list(values)}:
            return one_of([f'`"{value}"`' for value in values])
        case {"type": "array", "items": dict(item)}:
            return f"list of {type_words(item)}"
        case {"type": "object", "additionalProperties": value}:
            return f"object of {'any value' if value is True else type_words(value)}"
        case {"anyOf": list(members)}:
            return one_of([type_words(member) for member in members])
        case {"type": str(name)}:
            return name
        case _:
            return "any value"


def one_of(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
