"""Words and rows in, Markdown out."""

from collections.abc import Iterable, Sequence

from cursor_gateway.schema.catalogue import Anything, Choice, Field, ListOf, MapOf, Named, OneOf, Record, Scalar, Shape

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


def fields_table(record: Record) -> str:
    rows = [(f"`{field.name}`", type_words(field.shape), _there(field), _meaning(field)) for field in record.fields]
    return table(["field", "type", "present", "meaning"], rows)


def _there(field: Field) -> str:
    if not field.optional:
        return "always"
    return "extension" if field.ours else "optional"


def _meaning(field: Field) -> str:
    text = field.meaning.removeprefix("Extension: ")
    return text[:1].upper() + text[1:]


def type_words(shape: Shape) -> str:
    match shape:
        case Scalar(name=name):
            return name
        case Anything():
            return "any value"
        case Choice(values=values):
            return one_of([f'`"{value}"`' for value in values])
        case ListOf(item=item):
            return f"list of {type_words(item)}"
        case MapOf(value=value):
            return f"object of {type_words(value)}"
        case OneOf(members=members):
            return one_of([type_words(member) for member in members])
        case Named(name=name):
            return f"[{name}](#{name.lower()})"


def one_of(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
