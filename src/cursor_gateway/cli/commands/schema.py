"""`cursor-gateway schema`: print the definitions of all documents."""

from typing import Literal, TypeAlias

import click
import msgspec

Notation: TypeAlias = Literal["typescript", "openapi-components"]


@click.command()
@click.option("--typescript", "notation", flag_value="typescript", help="Print TypeScript definitions.")
@click.option(
    "--openapi-components",
    "notation",
    flag_value="openapi-components",
    help="Print the `components` of an OpenAPI document.",
)
def schema(notation: Notation | None) -> int:
    """Print the JSON Schema of responses, documents and events."""
    from cursor_gateway.schema import json_schema, openapi_components, typescript

    match notation:
        case "typescript":
            click.echo(typescript(), nl=False)
        case "openapi-components":
            click.echo(_indented(openapi_components()))
        case None:
            click.echo(_indented(json_schema()))
    return 0


def _indented(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
