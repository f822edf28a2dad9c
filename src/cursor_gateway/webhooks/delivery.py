"""Notices of a store in; requests to webhooks out, each at least once, until it is accepted or given up.

Every process of a cluster delivers. A notice is claimed for longer than a request can take, so two processes do not
send it at the same time; if one dies, another sends it again, with the same id. Each webhook has a task of its own: one
that does not answer delays no other.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from time import time
from typing import Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.base import ClaimedNotice, Outbox
from cursor_gateway.webhooks.messages import headers_of
from cursor_gateway.webhooks.post import SECONDS, PostFailed, post, seconds_until
from cursor_gateway.webhooks.webhook import Webhook

DeliveryResult: TypeAlias = Literal["delivered", "failed", "dead", "outdated"]

ATTEMPTS = 10  # within about a day
_FIRST_SECONDS, _FACTOR, _LONGEST_SECONDS = 5.0, 4.0, 8 * 3600.0
_MOST_ASKED = 24 * 3600.0  # by Retry-After
_LEASE_MS = int(2 * SECONDS * 1000)
_AT_ONCE = 4
_LOOK_SECONDS = 1.0
_GONE = 410  # the receiver wants no more


class Delivered(Struct, frozen=True, kw_only=True):
    """What became of an attempt, for logs and metrics."""

    webhook: str
    id: str
    run: str
    result: DeliveryResult
    attempts: int
    reason: str = ""
    next_seconds: float = 0.0


async def deliver(
    outbox: Outbox,
    name: str,
    webhook: Webhook,
    report: Callable[[Delivered], None],
    look_seconds: float = _LOOK_SECONDS,
) -> None:
    """Until it is cancelled. What is under way then is delivered by the next process."""
    while True:
        claimed: list[ClaimedNotice] = []
        with suppress(StoreUnavailable):
            claimed = await outbox.claim_notices(name, _AT_ONCE, _LEASE_MS)
        if claimed:
            attempts = await asyncio.gather(*(_attempt(outbox, name, webhook, notice) for notice in claimed))
            for attempt in attempts:
                report(attempt)
        else:
            await asyncio.sleep(look_seconds)


async def _attempt(outbox: Outbox, name: str, webhook: Webhook, notice: ClaimedNotice) -> Delivered:
    """If the store fails afterwards, the same is sent again."""
    result, reason, next_seconds = await _try(outbox, webhook, notice)
    with suppress(StoreUnavailable):
        if result == "failed":
            await outbox.put_off_notice(name, notice, int(next_seconds * 1000))
        else:
            await outbox.remove_notice(name, notice.id)
    return Delivered(
        webhook=name,
        id=notice.id,
        run=notice.run,
        result=result,
        attempts=notice.attempts,
        reason=reason,
        next_seconds=next_seconds,
    )


async def _try(outbox: Outbox, webhook: Webhook, notice: ClaimedNotice) -> tuple[DeliveryResult, str, float]:
    asked = 0.0
    try:
        if await _is_outdated(outbox, notice):
            return "outdated", "", 0.0
        now = time()
        headers = headers_of(webhook, notice.id, notice.body, int(now))
        posted = await post(webhook.url, headers, notice.body, allow_private=webhook.allow_private)
    except (PostFailed, StoreUnavailable) as error:
        reason = str(error)
    else:
        if 200 <= posted.status < 300:
            return "delivered", "", 0.0
        reason, asked = f"status {posted.status}", seconds_until(posted.retry_after, now)
        if posted.status == _GONE:
            return "dead", reason, 0.0
    if notice.attempts >= ATTEMPTS:
        return "dead", reason, 0.0
    return "failed", reason, max(min(asked, _MOST_ASKED), pause_after(notice.attempts, random.uniform(0.75, 1.25)))


def pause_after(attempts: int, jitter: float) -> float:
    """In seconds. The jitter spreads what failed at the same time."""
    return min(_FIRST_SECONDS * _FACTOR ** (attempts - 1), _LONGEST_SECONDS) * jitter


async def _is_outdated(outbox: Outbox, notice: ClaimedNotice) -> bool:
    """Of a run that waits: it has gone on since."""
    if not notice.number:
        return False
    run = await outbox.run(notice.run, notice.owner)
    return run is None or run.state != "running" or run.event_count > notice.number
