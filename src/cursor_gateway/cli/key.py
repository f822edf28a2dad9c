"""`cursor-gateway key`: a name in; a new API key out, once, and what the gateway must know of it."""

import click

from cursor_gateway.cli.configuration import usual_file
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import hash_key, is_name, is_reserved, new_key


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway key laptop
      cursor-gateway key ci > ci.key       only the key is written to standard output

    \b
    The key is not stored: the gateway needs only its hash.""",
)
@click.argument("name")
def key(name: str) -> int:
    """Create an API key for NAME and print it, with the configuration that the gateway needs."""
    if is_reserved(name):
        raise SettingsError(
            f"the name `{name}` is reserved for conversations from before API keys were set; choose another."
        )
    if not is_name(name):
        raise SettingsError("the name of a key must be 1 to 64 letters, digits, `_`, `.` or `-`; choose another.")
    made = new_key()
    click.echo(_lines(name, hash_key(made)), err=True)
    click.echo(made)
    return 0


def _lines(name: str, hashed: str) -> str:
    file = usual_file()
    entry = f'"{name}"' if "." in name else name  # TOML takes a bare dot for a table in a table
    return (
        f"In the configuration file{f' ({file})' if file else ''}:\n\n"
        f'  [api_keys]\n  {entry} = "{hashed}"\n\n'
        "or in the environment (replaces the keys in the file; separate several with commas):\n\n"
        f"  CURSOR_GATEWAY_API_KEYS={name}={hashed}\n\n"
        f"The key of {name} (it is not shown again):\n"
    )
