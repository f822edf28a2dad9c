from base64 import b64encode

import msgspec
import pytest

from cursor_gateway.webhooks.webhook import Webhook, secret_key
from tests.webhooks.receiver import SECRET


@pytest.mark.parametrize(
    "url", ["https://example.com/hook?x=1", "http://[::1]:8080/", "https://bücher.example"[:8] + "b"]
)
def test_an_address_is_a_url(url: str) -> None:
    assert Webhook(url=url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com",
        "example.com",
        "https://",
        "https://user:password@example.com",
        "https://example.com:port/",
        "https://example.com/a b",
        "https://example.com/a\r\nx: y",
        "https://bücher.example",
    ],
)
def test_what_cannot_be_posted_to_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"url|[Pp]ort"):
        Webhook(url=url)


def test_a_secret_has_the_form_of_standard_webhooks() -> None:
    assert len(secret_key(SECRET)) == 24
    for wrong in ("secret", SECRET.removeprefix("whsec_"), "whsec_!!!!", f"whsec_{b64encode(bytes(23)).decode()}"):
        with pytest.raises(ValueError, match="24 to 64 bytes"):
            Webhook(url="https://example.com", secret=wrong)
    assert len(secret_key(f"whsec_{b64encode(bytes(64)).decode()}")) == 64
    with pytest.raises(ValueError, match="24 to 64 bytes"):
        secret_key(f"whsec_{b64encode(bytes(65)).decode()}")


def test_all_events_are_sent_unless_some_are_named() -> None:
    assert Webhook(url="https://example.com").events == {"waiting", "finished", "failed"}
    for wrong in ([], ["ended"]):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"url": "https://example.com", "events": wrong}, Webhook)
