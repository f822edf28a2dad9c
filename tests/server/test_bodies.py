"""Bodies: a large one is parsed in a thread."""

import threading

from cursor_gateway.server.bodies import UnreadReplies, parse_body


async def test_only_much_is_read_beside_the_loop() -> None:
    async def where(size: int) -> int:
        return await parse_body(b"x" * size, lambda body: threading.get_ident(), lambda: UnreadReplies().turn("me"))

    assert await where(1000) == threading.get_ident()
    assert await where(1_000_000) != threading.get_ident()
