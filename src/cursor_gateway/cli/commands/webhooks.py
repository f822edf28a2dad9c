"""`cursor-gateway webhooks`: send a test message to the webhooks of the settings."""

import asyncio
import time
from secrets import token_hex

import click

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.errors import SettingsError
from cursor_gateway.webhooks.webhook import Webhook


@click.group()
def webhooks() -> None:
    """Tell other services when runs wait, finish or fail (setting `webhooks`)."""


@webhooks.command(
    epilog="""\b
    Examples:
      cursor-gateway webhooks test
      cursor-gateway webhooks test slack

    \b
    One attempt each, from this machine, without the history. Exit status: 1 if a webhook did not
    accept its message; 2 if there is none of this name.""",
)
@config
@click.argument("names", nargs=-1, metavar="[NAME]...")
def test(config: str | None, names: tuple[str, ...]) -> int:
    """Send a test message to all webhooks, or to those named."""
    known = configuration(config).settings.webhooks
    if not known:
        raise SettingsError("there are no webhooks; add `[webhooks.NAME]` with a `url` to the settings.")
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(f"there is no webhook {unknown[0]!r}; the settings have {', '.join(known)}.")
    results = [asyncio.run(_send(name, known[name])) for name in names or known]
    return 0 if all(results) else 1


async def _send(name: str, webhook: Webhook) -> bool:
    from cursor_gateway.webhooks.messages import headers_of, sample_message
    from cursor_gateway.webhooks.post import PostFailed, post

    now = time.time()
    body = sample_message(name, webhook, int(now * 1000))
    headers = headers_of(webhook, f"msg_test_{token_hex(8)}", body, int(now))
    try:
        posted = await post(webhook.url, headers, body, allow_private=webhook.allow_private)
    except PostFailed as error:
        click.echo(f"{name}: {error}")
        return False
    click.echo(f"{name}: status {posted.status}")
    return 200 <= posted.status < 300
