"""`cursor-gateway webhooks test`, in this process, with a receiver."""

import msgspec
import pytest
from click.testing import CliRunner

from cursor_gateway.cli.commands.operations import webhooks
from cursor_gateway.errors import SettingsError
from tests.webhooks.receiver import SECRET, receiving


def run(configured: object, *names: str) -> tuple[int, str]:
    environ = {"CURSOR_GATEWAY_WEBHOOKS": msgspec.json.encode(configured).decode()}
    result = CliRunner(env=environ).invoke(webhooks, ["test", *names], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout


def test_every_webhook_gets_a_signed_message() -> None:
    with receiving("200", "404") as receiver:
        mine = {"url": receiver.url, "secret": SECRET, "allow_private": True}
        chat = {"url": receiver.url, "body": {"text": "{text}"}, "allow_private": True}
        assert run({"mine": mine, "chat": chat, "inside": {"url": receiver.url}}) == (
            1,
            "mine: status 200\nchat: status 404\n"
            "inside: its address is private; set `allow_private` if that is intended\n",
        )
    first, second = receiver.received
    assert first.verified()["data"] == {"text": "A test of the webhook mine."}
    assert second.json == {"text": "A test of the webhook chat."}
    assert first.id != second.id


def test_one_can_be_named() -> None:
    with receiving() as receiver:
        both = {name: {"url": receiver.url, "allow_private": True} for name in ("a", "b")}
        assert run(both, "b") == (0, "b: status 204\n")
    assert len(receiver.received) == 1


def test_one_that_does_not_exist_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(SettingsError, match=r"there are no webhooks; add `\[webhooks.NAME\]`"):
        run({})
    with pytest.raises(SettingsError, match="there is no webhook 'c'; the settings have a"):
        run({"a": {"url": "https://example.com"}}, "c")
