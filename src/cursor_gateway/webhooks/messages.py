"""News of a run in; messages for webhooks out, as Standard Webhooks has them: typed, with an id, and signed.

No message has text of a prompt or an answer: chat services and their notifications are seen by others.
"""

import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.model.documents import Mode, Status, Usage
from cursor_gateway.store.base import Notice, RunNews
from cursor_gateway.webhooks.webhook import Webhook, WebhookEvent, secret_key

MessageType: TypeAlias = Literal["run.waiting", "run.finished", "run.failed", "test"]

# A client that runs tools itself, or a person at the page, answers within seconds: then nobody needs to know.
WAITING_MS = 10_000

_LAST = 2**31 - 1  # more events than a run can have: a run whose reply goes on may have some while it waits

_EVENTS: Mapping[Status, WebhookEvent] = {"streaming": "waiting", "completed": "finished", "error": "failed"}
_TYPES: Mapping[WebhookEvent, MessageType] = {
    "waiting": "run.waiting",
    "finished": "run.finished",
    "failed": "run.failed",
}
_ODD = re.compile(r"[^\w .,:/+-]")  # characters that mean something to a chat service
_FIELD = re.compile(r"\{(\w+)\}")


class AwaitedCall(Struct, frozen=True, rename="camel"):
    """A call that the run waits for; without its arguments."""

    tool_call_id: str
    tool_name: str
    document_id: str


class RunFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    id: Annotated[str, "The run, for `/v1/chat/{id}`."]
    conversation_id: str
    key: Annotated[str, "The name of the API key; `local` without keys."]
    model: str
    mode: Mode
    created: str
    status: Status
    usage: Usage
    text: Annotated[str, "A sentence for people."]
    url: Annotated[str | UnsetType, "The answer on the page, if its address is known (setting `page_url`)."] = UNSET
    error_code: Annotated[str | UnsetType, "Why it failed."] = UNSET
    waiting_for: Annotated[list[AwaitedCall] | UnsetType, "The calls that somebody must answer."] = UNSET


class RunMessage(Struct, frozen=True):
    type: MessageType
    timestamp: str  # ISO 8601, UTC
    data: RunFacts


def time_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Announcer:
    """Makes the notices that are stored with the news."""

    def __init__(self, webhooks: Mapping[str, Webhook], page_url: str, now_ms: Callable[[], int]) -> None:
        self._webhooks, self._page_url, self._now_ms = webhooks, page_url.rstrip("/"), now_ms

    def __call__(self, news: RunNews) -> Sequence[Notice]:
        event = _EVENTS[news.envelope.status]
        wanted = [name for name, one in self._webhooks.items() if _wants(one, event, news.owner)]
        if not wanted:
            return ()
        message = msgspec.to_builtins(self._message(event, news))
        return [
            Notice(
                webhook=name,
                id=f"msg_{news.envelope.id}_{news.number or 'end'}",
                body=body_of(self._webhooks[name], message),
                number=_LAST if news.goes_on else news.number,
                delay_ms=WAITING_MS if event == "waiting" else 0,
            )
            for name in wanted
        ]

    def _message(self, event: WebhookEvent, news: RunNews) -> RunMessage:
        of = news.envelope
        calls = [AwaitedCall(one.tool_call_id, one.tool_name, one.document_id) for one in of.metadata.waiting_for or ()]
        facts = RunFacts(
            id=of.id,
            conversation_id=of.conversation_id,
            key=news.owner,
            model=of.model,
            mode=of.mode,
            created=of.created,
            status=of.status,
            usage=of.usage,
            text=_sentence(event, news, calls),
            url=f"{self._page_url}/#/c/{of.conversation_id}/{of.id}" if self._page_url else UNSET,
            error_code=news.failure_code or UNSET,
            waiting_for=calls or UNSET,
        )
        return RunMessage(_TYPES[event], time_of(self._now_ms()), facts)


def _wants(webhook: Webhook, event: WebhookEvent, owner: str) -> bool:
    return event in webhook.events and (not webhook.keys or owner in webhook.keys)


def _sentence(event: WebhookEvent, news: RunNews, calls: Sequence[AwaitedCall]) -> str:
    return _plain(f"{news.owner}: A run {_said(event, news, calls)}")


def _plain(text: str) -> str:
    return " ".join(_ODD.sub(" ", text).split())


def _said(event: WebhookEvent, news: RunNews, calls: Sequence[AwaitedCall]) -> str:
    usage = news.envelope.usage
    match event:
        case "waiting":
            return f"waits for an answer: {', '.join(call.tool_name for call in calls)}"
        case "finished":
            cost = f", {usage.cost:.2f} USD" if isinstance(usage.cost, float) else ""
            return f"has finished: {news.envelope.model}, {usage.total_tokens:,} tokens{cost}"
        case "failed":
            return f"has failed: {(news.failure_code or 'unknown').replace('_', ' ')}"


def sample_message(name: str, webhook: Webhook, now_ms: int) -> bytes:
    facts = {"text": f"A test of the webhook {name}."}
    return body_of(webhook, {"type": "test", "timestamp": time_of(now_ms), "data": facts})


def body_of(webhook: Webhook, message: Mapping[str, Any]) -> bytes:
    """The message, or the operator's own body: there, a name in braces stands for a fact; one that the message does not
    have, for nothing. Callers choose some facts, such as the model."""
    if not webhook.body:
        return msgspec.json.encode(message)
    known = {**message, **message["data"]}
    texts = {name: value if name == "url" else _plain(value) for name, value in known.items() if isinstance(value, str)}
    return msgspec.json.encode(
        {name: _FIELD.sub(lambda found: texts.get(found[1], ""), text) for name, text in webhook.body.items()}
    )


def headers_of(webhook: Webhook, id: str, body: bytes, now: int) -> dict[str, str]:
    """`now`: of this attempt, in seconds, so that receivers can refuse old messages."""
    headers = {"webhook-id": id, "webhook-timestamp": str(now)}
    if webhook.secret:
        signed = hmac.new(secret_key(webhook.secret), f"{id}.{now}.".encode() + body, sha256).digest()
        headers["webhook-signature"] = f"v1,{b64encode(signed).decode()}"
    return headers
