"""The search index: a run's text in, its rows out; a query in, the newest runs of conversations that match out.

A text has the tokens of `stages/search_tokens.py`, as in every engine. A tsvector has at most a megabyte, so a very
long run has several rows, each with some of its tokens; the rows that are found are then counted per token.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from cursor_gateway.stages import search_tokens
from cursor_gateway.stages.search_tokens import Query
from cursor_gateway.store.postgres.connections import PostgresConnection
from cursor_gateway.store.sql import ByRun
from cursor_gateway.store.texts import owner_scope, searchable

_SHORT = 2_000  # characters; tokenizing them takes less time than passing them to another thread
_PART_BYTES = 1_000_000  # of tokens; a tsvector has room for 2^20

# Of the run whose key is in `run`. The values are those of `Entry.values`.
ADD = """
    INSERT INTO search (run, part, parts, tokens, text)
    SELECT run.key, part.place - 1, cardinality(%(parts)s::text[]),
        array_to_tsvector(string_to_array(part.tokens, ' ')), CASE part.place WHEN 1 THEN %(text)s ELSE '' END
    FROM run, unnest(%(parts)s::text[]) WITH ORDINALITY AS part (tokens, place)
"""
REPLACE = f"""
    {ADD}
    ON CONFLICT (run, part) DO UPDATE SET parts = excluded.parts, tokens = excluded.tokens, text = excluded.text
"""
_MATCHES = """
    WITH found AS (
        SELECT run FROM search WHERE parts = 1 AND tokens @@ %(all)s::tsquery
        UNION ALL
        SELECT run FROM search CROSS JOIN unnest(%(each)s::text[]) AS one
        WHERE parts > 1 AND tokens @@ one::tsquery
        GROUP BY run HAVING count(DISTINCT one) = cardinality(%(each)s::text[])
    )
    SELECT runs.conversation, max(runs.key)
    FROM found
        JOIN runs ON runs.key = found.run
        JOIN conversations ON conversations.key = runs.conversation
    WHERE conversations.owner = %(owner)s AND runs.key <= %(top)s
    GROUP BY runs.conversation HAVING max(runs.key) < %(last)s
    ORDER BY 2 DESC LIMIT %(limit)s
"""


class SearchEntry(Struct, frozen=True):
    """What the index has of a run."""

    text: str
    parts: list[list[str]]  # of its tokens

    def values(self, owner: str) -> dict[str, str | list[str]]:
        """No token has a space in it."""
        return {"text": self.text, "parts": [" ".join([owner_scope(owner), *tokens]) for tokens in self.parts]}


async def entry_of(texts: Sequence[str]) -> SearchEntry:
    if sum(map(len, texts)) < _SHORT:
        return _entry(texts)
    return await asyncio.to_thread(_entry, texts)


def _entry(texts: Iterable[str]) -> SearchEntry:
    """May take 100 ms for a long text: not in the event loop."""
    text = searchable(texts)
    return SearchEntry(text, list(_parts(search_tokens.tokens(text))) or [[]])


async def find(
    connection: PostgresConnection, owner: str, query: Query, place: ByRun, limit: int
) -> list[tuple[int, int]]:
    """Conversations, each with its newest matching run, newest first."""
    each = [f"'{token}'" for token in (owner_scope(owner), *query.tokens)]
    if query.prefix:
        each.append(f"'{query.prefix}':*")
    values = {
        "all": " & ".join(each),
        "each": each,
        "owner": owner,
        "top": place.top,
        "last": place.last,
        "limit": limit,
    }
    return await (await connection.execute(_MATCHES, values)).fetchall()


def _parts(tokens: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for token in tokens:
        length = len(token.encode())
        if part and size + length > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(token)
        size += length
    if part:
        yield part
