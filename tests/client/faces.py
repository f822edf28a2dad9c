"""Both clients with one face, so that what is said of one is tested of the other, too."""

import asyncio
from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar

from cursor_gateway import (
    AsyncClient,
    AsyncStream,
    ChatResponse,
    Client,
    ConversationDetail,
    ConversationEntry,
    DocumentEvent,
    Envelope,
    Health,
    ModelEntry,
)

T = TypeVar("T")


class Awaited:
    """`AsyncClient`, each of whose calls is waited for on an event loop of its own."""

    def __init__(self, url: str, api_key: str | None = None, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.client = AsyncClient(url, api_key, **options)

    def __enter__(self) -> "Awaited":
        self.runner.run(self.client.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.run(self.client.__aexit__())
        self.runner.close()

    def chat(self, message: str, **options: Any) -> ChatResponse:
        return self.runner.run(self.client.chat(message, **options))

    def stream(self, message: str, **options: Any) -> "AwaitedStream":
        return AwaitedStream(self.runner, self.client.stream(message, **options))

    def start(self, message: str, **options: Any) -> str:
        return self.runner.run(self.client.start(message, **options))

    def response(self, id: str) -> ChatResponse:
        return self.runner.run(self.client.response(id))

    def events(self, id: str, after: int = 0) -> "AwaitedStream":
        return AwaitedStream(self.runner, self.client.events(id, after))

    def answer(self, id: str, **result: Any) -> str:
        return self.runner.run(self.client.answer(id, **result))

    def cancel(self, id: str) -> Envelope:
        return self.runner.run(self.client.cancel(id))

    def conversations(self, query: str | None = None, limit: int | None = None) -> Iterator[ConversationEntry]:
        async def listed() -> list[ConversationEntry]:
            return [entry async for entry in self.client.conversations(query, limit)]

        return iter(self.runner.run(listed()))

    def conversation(self, id: str) -> ConversationDetail:
        return self.runner.run(self.client.conversation(id))

    def delete_conversation(self, id: str) -> None:
        self.runner.run(self.client.delete_conversation(id))

    def models(self) -> list[ModelEntry]:
        return self.runner.run(self.client.models())

    def health(self) -> Health:
        return self.runner.run(self.client.health())


class AwaitedStream:
    def __init__(self, runner: asyncio.Runner, stream: AsyncStream) -> None:
        self._runner, self._stream = runner, stream

    def __enter__(self) -> "AwaitedStream":
        self._runner.run(self._stream.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stream.__aexit__())

    def __iter__(self) -> "AwaitedStream":
        return self

    def __next__(self) -> DocumentEvent:
        async def one() -> DocumentEvent | None:
            return await anext(self._stream, None)

        if (event := self._runner.run(one())) is None:
            raise StopIteration
        return event

    def batches(self) -> Iterator[list[DocumentEvent]]:
        async def all() -> list[list[DocumentEvent]]:
            return [batch async for batch in self._stream.batches()]

        return iter(self._runner.run(all()))

    @property
    def text(self) -> Iterator[str]:
        async def all() -> list[str]:
            return [text async for text in self._stream.text]

        return iter(self._runner.run(all()))

    def result(self) -> ChatResponse:
        return self._runner.run(self._stream.result())

    def cancel(self) -> None:
        self._runner.run(self._stream.cancel())

    def let_finish(self) -> None:
        self._stream.let_finish()

    @property
    def id(self) -> str:
        return self._stream.id

    @property
    def conversation_id(self) -> str:
        return self._stream.conversation_id

    @property
    def response(self) -> ChatResponse | None:
        return self._stream.response

    @property
    def last_event(self) -> int:
        return self._stream.last_event


AnyClient: TypeAlias = Client | Awaited
