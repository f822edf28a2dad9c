import time

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from cursor_gateway.model.documents import Status, WaitingCall
from cursor_gateway.store.base import Notice, RunNews
from cursor_gateway.webhooks.messages import WAITING_MS, Announcer, headers_of, sample_message
from cursor_gateway.webhooks.webhook import Webhook
from tests.store.making import envelope
from tests.webhooks.receiver import SECRET

URL = "https://example.com/hook"
NOW_MS = 1_771_842_600_000


def news(status: Status = "completed", *, owner: str = "alice", number: int = 0, goes_on: bool = False) -> RunNews:
    of = envelope("chat_1", status)
    if status == "streaming":
        call = WaitingCall(
            tool_call_id="call_1", tool_name="<!shell>", arguments={"secret": "x"}, document_id="doc_002"
        )
        of = msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, waiting_for=[call]))
    code = "agent_crashed" if status == "error" else None
    return RunNews(owner=owner, envelope=of, failure_code=code, number=number, goes_on=goes_on)


def notices(of: RunNews, page_url: str = "", /, **webhooks: Webhook) -> list[Notice]:
    return list(Announcer(webhooks, page_url, lambda: NOW_MS)(of))


def data(notice: Notice) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(notice.body)["data"]
    return found


def test_a_run_that_ended_is_reported_without_its_text() -> None:
    (notice,) = notices(news(), "http://gateway:8787/", hook=Webhook(url=URL))
    assert (notice.webhook, notice.id, notice.number, notice.delay_ms) == ("hook", "msg_chat_1_end", 0, 0)
    assert msgspec.json.decode(notice.body) == {
        "type": "run.finished",
        "timestamp": "2026-02-23T10:30:00Z",
        "data": {
            "id": "chat_1",
            "conversationId": "conv",
            "key": "alice",
            "model": "opus",
            "mode": "agent",
            "created": "2026-02-23T10:30:00Z",
            "status": "completed",
            "usage": {"promptTokens": 5, "completionTokens": 6, "totalTokens": 11, "cachedTokens": 2},
            "text": "alice: A run has finished: opus, 11 tokens",
            "url": "http://gateway:8787/#/c/conv/chat_1",
        },
    }


def test_a_failure_has_its_code_and_no_link_without_an_address() -> None:
    (notice,) = notices(news("error"), hook=Webhook(url=URL))
    assert msgspec.json.decode(notice.body)["type"] == "run.failed"
    assert data(notice)["errorCode"] == "agent_crashed"
    assert data(notice)["text"] == "alice: A run has failed: agent crashed"
    assert "url" not in data(notice)


def test_a_cost_is_in_the_sentence() -> None:
    of = news()
    usage = msgspec.structs.replace(of.envelope.usage, cost=1.234)
    priced = msgspec.structs.replace(of, envelope=msgspec.structs.replace(of.envelope, usage=usage))
    (notice,) = notices(priced, hook=Webhook(url=URL))
    assert data(notice)["text"] == "alice: A run has finished: opus, 11 tokens, 1.23 USD"


def test_a_run_that_waits_names_the_calls_without_their_arguments() -> None:
    """Names come from others; what a chat service would act upon is not sent in the sentence."""
    (notice,) = notices(news("streaming", number=7), hook=Webhook(url=URL))
    assert (notice.id, notice.number, notice.delay_ms) == ("msg_chat_1_7", 7, WAITING_MS)
    assert data(notice)["waitingFor"] == [{"toolCallId": "call_1", "toolName": "<!shell>", "documentId": "doc_002"}]
    assert data(notice)["text"] == "alice: A run waits for an answer: shell"
    (goes_on,) = notices(news("streaming", number=7, goes_on=True), hook=Webhook(url=URL))
    assert (goes_on.id, goes_on.number) == ("msg_chat_1_7", 2**31 - 1)  # it may have more events while it waits


def test_a_webhook_gets_the_events_and_keys_that_it_names() -> None:
    webhooks = {
        "all": Webhook(url=URL),
        "failures": Webhook(url=URL, events=frozenset({"failed"})),
        "bob": Webhook(url=URL, keys=["bob"]),
    }
    assert [one.webhook for one in notices(news(), **webhooks)] == ["all"]
    assert [one.webhook for one in notices(news("error"), **webhooks)] == ["all", "failures"]
    assert [one.webhook for one in notices(news(owner="bob"), **webhooks)] == ["all", "bob"]
    assert notices(news(), bob=webhooks["bob"]) == []


def test_a_service_gets_the_body_that_it_takes() -> None:
    """Nothing that replaces a name is taken for a name, or for JSON."""
    slack = Webhook(url=URL, body={"text": "{text} {url}", "odd": '{nothing}{}{{type}} "', "{type}": "plain"})
    (notice,) = notices(news(owner='{id} "quoted"'), "http://gateway", slack=slack)
    assert msgspec.json.decode(notice.body) == {
        "text": "id quoted : A run has finished: opus, 11 tokens http://gateway/#/c/conv/chat_1",
        "odd": '{}{run.finished} "',
        "{type}": "plain",
    }
    assert msgspec.json.decode(sample_message("slack", slack, NOW_MS))["text"] == "A test of the webhook slack. "
    assert msgspec.json.decode(sample_message("plain", Webhook(url=URL), NOW_MS)) == {
        "type": "test",
        "timestamp": "2026-02-23T10:30:00Z",
        "data": {"text": "A test of the webhook plain."},
    }


def test_what_a_caller_chooses_is_nothing_that_a_service_acts_upon() -> None:
    of = news("error")
    asked = msgspec.structs.replace(of, envelope=msgspec.structs.replace(of.envelope, model="<!channel> *opus*"))
    (notice,) = notices(asked, slack=Webhook(url=URL, body={"text": "{model}: {errorCode}"}))
    assert msgspec.json.decode(notice.body) == {"text": "channel opus: agent_crashed"}


def test_the_official_library_accepts_the_signature() -> None:
    webhook, now = Webhook(url=URL, secret=SECRET), int(time.time())
    headers = headers_of(webhook, "msg_1", b'{"type":"test"}', now)
    assert Verifier(SECRET).verify(b'{"type":"test"}', headers) == {"type": "test"}
    for body, changed in ((b'{"type":"text"}', headers), (b'{"type":"test"}', {**headers, "webhook-id": "msg_2"})):
        with pytest.raises(WebhookVerificationError):
            Verifier(SECRET).verify(body, changed)
    assert "webhook-signature" not in headers_of(Webhook(url=URL), "msg_1", b"", now)
