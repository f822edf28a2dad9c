"""Laws of conversations: whose they are, their messages, their pages, what is found in them, and what goes."""

import asyncio
import re
from random import Random
from string import ascii_letters
from typing import get_args

import msgspec
import pytest
from hypothesis import strategies as st

from cursor_gateway.errors import InvalidRequest, StoreUnavailable
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent
from cursor_gateway.model.documents import Document
from cursor_gateway.stages import search_tokens
from cursor_gateway.store.base import (
    Busy,
    Fenced,
    FoundConversation,
    HistoryLimits,
    Idempotency,
    IdempotentRun,
    MessageRecord,
    NewMessage,
    Stored,
    TitleChange,
)
from cursor_gateway.store.sql import SqlStore
from cursor_gateway.store.texts import made_title
from tests.stages.test_search_tokens import matches
from tests.store.conformance.law import (
    all_pages,
    everything,
    for_all,
    ids,
    law,
    law_of_two,
    pages,
    texts,
    the_conversation,
    whole_run,
)
from tests.store.making import (
    DAY_MS,
    EVERY_DOCUMENT,
    ME,
    YOU,
    by_fingerprint,
    deltas,
    lease,
    new_run,
    rejected_command,
    run_end,
    text_document,
)
from tests.store.test_search import queries

# --- conversations ----------------------------------------------------------------------------------


@law
async def a_conversation_goes_on_with_its_next_run(store: SqlStore) -> None:
    await whole_run(store, "a", "conv", "Mend the login\nplease", at=1000, session_id="s1", fingerprint="f1")
    await whole_run(store, "b", "conv", "And now?", at=5000)
    conversation = await the_conversation(store)
    assert (conversation.title, conversation.workspace, conversation.model) == ("Mend the login", "/w", "opus")
    assert (conversation.created_ms, conversation.updated_ms) == (1000, 5000)
    assert (conversation.session_id, conversation.fingerprint) == ("s1", "f1")
    assert [run.id for run in await store.runs_of("conv", ME)] == ["a", "b"]
    assert await store.messages("conv", ME) == [
        MessageRecord(number=1, role="user", text="Mend the login\nplease", run_id="a", created_ms=1000),
        MessageRecord(number=2, role="assistant", text="Hi", run_id="a", created_ms=1000),
        MessageRecord(number=3, role="user", text="And now?", run_id="b", created_ms=5000),
        MessageRecord(number=4, role="assistant", text="Hi", run_id="b", created_ms=5000),
    ]


@law
async def a_conversation_names_the_program_that_began_it(store: SqlStore) -> None:
    await store.begin_run(msgspec.structs.replace(new_run("a"), client="OpenCode"))
    assert (await the_conversation(store)).client == "OpenCode"
    await store.append(lease("a"), 1, [], run_end())
    await store.begin_run(msgspec.structs.replace(new_run("b"), client=""))  # somebody at the page goes on with it
    assert (await the_conversation(store)).client == "OpenCode"


@law
async def the_agents_title_replaces_only_one_that_was_made(store: SqlStore) -> None:
    change = TitleChange(made_title([NewMessage("user", "Mend the login. Please")]), "Login Repair")
    for run, conversation in (("a", "conv"), ("b", "chosen")):
        await store.begin_run(new_run(run, conversation, "Mend the login. Please"))
    await store.change_conversation("chosen", ME, title="Mine")
    for run in ("a", "b"):
        await store.append(lease(run), 1, [], msgspec.structs.replace(run_end(run), title=change))
    assert (await the_conversation(store)).title == "Login Repair"
    assert (await the_conversation(store, "chosen")).title == "Mine"
    await whole_run(store, "c", "conv", "And now?", at=5000)
    assert (await the_conversation(store)).title == "Login Repair"


@law
async def a_link_leads_to_one_conversation_until_it_is_replaced_or_revoked(store: SqlStore) -> None:
    async def linked(owner: str = ME) -> list[str]:
        return [found.conversation.id for found in (await store.conversations(owner, is_linked=True)).found]

    await whole_run(store, "a", "conv", "Mend the login", at=1000)
    await whole_run(store, "b", "other", "And now?", at=5000)
    await whole_run(store, "c", "third", "And then?", at=6000)
    assert (await the_conversation(store)).linked_ms is None
    assert not await store.change_conversation("conv", YOU, link_hash="h1", linked_ms=1)
    assert await store.change_conversation("conv", ME, link_hash="h1", linked_ms=7000)
    assert await store.change_conversation("other", ME, link_hash="h2", linked_ms=8000)
    assert await store.change_conversation("other", ME, title="Another")  # keeps it
    assert (await linked(), await linked(YOU)) == (["other", "conv"], [])
    assert await store.find_by_link("h1") == await the_conversation(store)
    assert (await the_conversation(store)).linked_ms == 7000
    assert await store.change_conversation("conv", ME, link_hash="h3", linked_ms=9000)
    assert await store.find_by_link("h1") is None
    assert not await store.change_conversation("conv", YOU, link_hash="")
    assert await store.change_conversation("conv", ME, link_hash="")
    assert (await the_conversation(store)).linked_ms is None
    assert await store.find_by_link("h3") is None
    assert await linked() == ["other"]
    await store.delete_conversation("other", ME)
    assert await store.find_by_link("h2") is None
    assert await linked() == []


@law
async def a_message_names_its_images(store: SqlStore) -> None:
    said = [NewMessage("user", "Look", ("a.png", "b.jpg")), NewMessage("user", "Well?")]
    await store.begin_run(msgspec.structs.replace(new_run("a"), messages=said))
    await store.append(lease("a"), 1, [], run_end(answer="Hi"))
    messages = await store.messages("conv", ME)
    assert [message.images for message in messages] == [("a.png", "b.jpg"), (), ()]


@law
async def the_list_can_be_limited_to_what_some_programs_began(store: SqlStore) -> None:
    for number, client in enumerate(["", "OpenCode", "curl", ""]):
        run = new_run(f"r{number}", f"c{number}", at=1000 + number)
        await store.begin_run(msgspec.structs.replace(run, client=client))
        if client != "curl":
            await store.append(lease(f"r{number}"), 1, [], run_end(at=1000 + number))

    async def listed(limit: int = 20, before: str | None = None, *clients: str) -> list[str]:
        page = await store.conversations(ME, limit=limit, before=before, clients=clients)
        return [one.conversation.id for one in page.found]

    assert await listed(20, None, "") == ["c3", "c2", "c0"]  # c2 is another's, and works
    assert await listed(20, None, "OpenCode", "none") == ["c2", "c1"]
    first = await store.conversations(ME, limit=1, clients=[""])
    assert await listed(20, first.next, "") == ["c2", "c0"]


@law
async def a_conversation_is_renamed_and_pinned(store: SqlStore) -> None:
    await whole_run(store, "a", "conv", "Mend the login", at=1000)
    await whole_run(store, "b", "other", "Another", at=2000)
    assert (await store.conversations(ME, is_pinned=True)).found == []
    assert await store.change_conversation("conv", ME, title="Login")
    assert await store.change_conversation("conv", ME, is_pinned=True)
    found = await the_conversation(store)
    assert (found.title, found.is_pinned, found.updated_ms) == ("Login", True, 1000)
    assert (await store.conversations(ME, is_pinned=True)).found == [FoundConversation(found)]
    assert (await store.conversations(YOU, is_pinned=True)).found == []
    await whole_run(store, "c", "conv", "And now?", at=5000)
    found = await the_conversation(store)
    assert (found.title, found.is_pinned) == ("Login", True)
    assert await store.change_conversation("conv", ME, is_pinned=False)
    assert (await store.conversations(ME, is_pinned=True)).found == []


@law_of_two
async def a_conversation_needs_a_decision_until_it_is_made_or_the_next_run_starts(
    store: SqlStore, other: SqlStore
) -> None:
    await whole_run(store, "a", "conv", documents=[text_document("x")])
    assert not (await the_conversation(other)).needs_decision
    await whole_run(store, "b", "conv", documents=[rejected_command(), text_document("x")])
    assert (await the_conversation(other)).needs_decision
    (listed,) = (await other.conversations(ME)).found
    assert listed.conversation.needs_decision
    await store.set_decided("b", YOU)
    await store.set_decided("a", ME)
    await store.set_decided("nowhere", ME)
    assert (await the_conversation(other)).needs_decision
    await store.set_decided("b", ME)
    assert not (await the_conversation(other)).needs_decision
    await whole_run(store, "c", "conv", documents=[rejected_command()])
    assert isinstance(await store.begin_run(new_run("d", "conv")), Stored)
    assert not (await the_conversation(other)).needs_decision
    await store.append(lease("d"), 1, [], run_end("d"))
    assert not (await the_conversation(other)).needs_decision


@law
async def only_its_owner_changes_a_conversation(store: SqlStore) -> None:
    await whole_run(store, "a", "conv", "Mend the login")
    assert not await store.change_conversation("conv", YOU, title="Mine now", is_pinned=True)
    assert not await store.change_conversation("nowhere", ME, title="New", is_pinned=True)
    await store.change_conversation("conv", ME, is_pinned=True)
    await store.delete_conversation("conv", ME)
    assert not await store.change_conversation("conv", ME, title="Back", is_pinned=True)
    assert (await store.conversations(ME, is_pinned=True)).found == []


@law
async def a_recent_run_tells_its_own_prompt(store: SqlStore) -> None:
    await whole_run(store, "a", "conv", "Mend the login")
    await whole_run(store, "b", "conv", "Before", "And now?\nMore.")
    assert [prompt for _, _, prompt in await store.recent_runs(ME, 10)] == ["And now?", "Mend the login"]


@law
async def messages_are_numbered_in_the_order_in_which_they_were_said(store: SqlStore) -> None:
    for id, said in (("a", ("one", "two")), ("b", ("three",))):
        await store.begin_run(new_run(id, "conv", *said))
        await store.append(lease(id), 1, [], run_end(id, answer=f"answer of {id}"))
    found = await store.messages("conv", ME)
    assert [(message.number, message.run_id, message.text) for message in found] == [
        (1, "a", "one"),
        (2, "a", "two"),
        (3, "a", "answer of a"),
        (4, "b", "three"),
        (5, "b", "answer of b"),
    ]


@law
async def a_conversation_has_one_running_run(store: SqlStore) -> None:
    await store.begin_run(new_run("a", "conv", "one"))
    assert await store.begin_run(new_run("b", "conv", "two")) == Busy("a")
    assert isinstance(await store.begin_run(new_run("a", "conv", "one")), Stored)
    assert await store.run("b", ME) is None
    assert await texts(store) == ["one"]
    assert isinstance(await store.begin_run(new_run("yours", "conv", owner=YOU)), Stored)
    await store.append(lease("a"), 1, [], run_end())
    assert isinstance(await store.begin_run(new_run("b", "conv", "two")), Stored)
    assert await texts(store) == ["one", "Hi", "two"]


@law_of_two
async def of_runs_that_begin_at_once_in_a_conversation_one_does(store: SqlStore, other: SqlStore) -> None:
    names = [f"run{number}" for number in range(10)]
    begun = await asyncio.gather(
        *((store, other)[number % 2].begin_run(new_run(id, "conv", id)) for number, id in enumerate(names))
    )
    (winner,) = (id for id, one in zip(names, begun, strict=True) if isinstance(one, Stored))
    assert [one for one in begun if not isinstance(one, Stored)] == [Busy(winner)] * 9
    assert [run.id for run in await store.runs_of("conv", ME)] == [winner]
    assert await texts(store) == [winner]
    assert await ids(store) == ["conv"]


@law
async def a_history_that_a_client_brings_is_kept_in_its_order_and_titled_by_the_user(store: SqlStore) -> None:
    said = [NewMessage("assistant", "Welcome"), NewMessage("user", "Thanks \ud800"), NewMessage("assistant", "Well?")]
    await store.begin_run(msgspec.structs.replace(new_run(), messages=said))
    assert [(message.role, message.text) for message in await store.messages("conv", ME)] == [
        ("assistant", "Welcome"),
        ("user", "Thanks \ufffd"),
        ("assistant", "Well?"),
    ]
    assert (await the_conversation(store)).title == "Thanks \ufffd"


@law
async def a_conversation_without_a_word_of_the_user_has_a_title(store: SqlStore) -> None:
    await store.begin_run(msgspec.structs.replace(new_run(), messages=[]))
    await store.append(lease("run"), 1, [], run_end(answer=""))
    assert (await the_conversation(store)).title == "Untitled"
    assert await store.messages("conv", ME) == []


@law
async def a_fingerprint_can_be_replaced(store: SqlStore) -> None:
    await whole_run(store, "run", "conv", session_id="s1", fingerprint="f1")
    assert await store.change_conversation("conv", ME, fingerprint="f2")
    assert ((await the_conversation(store)).session_id, await by_fingerprint(store, ME, "f1")) == ("s1", [])
    assert await by_fingerprint(store, ME, "f2") == ["conv"]


@law
async def a_fingerprint_finds_idle_conversations_the_newest_first(store: SqlStore) -> None:
    for number in range(3):
        await whole_run(store, f"run{number}", f"conv{number}", at=1000 + number, fingerprint="f1")
    await whole_run(store, "run3", "conv3", at=2000, fingerprint="f2")
    assert await by_fingerprint(store, ME, "f1") == ["conv2", "conv1", "conv0"]
    await store.begin_run(new_run("again", "conv1"))
    assert await by_fingerprint(store, ME, "f1") == ["conv2", "conv0"]


@law
async def unknown_conversations_are_nobodys(store: SqlStore) -> None:
    await whole_run(store, "mine", "mine")
    await whole_run(store, "yours", "yours", owner=YOU)
    await whole_run(store, "deleted", "deleted")
    await store.delete_conversation("deleted", ME)
    assert await store.unknown_conversations(["a", "mine", "b", "yours", "deleted", "\ud800"]) == [
        "a",
        "b",
        "deleted",
        "\ud800",
    ]
    assert await store.unknown_conversations([]) == []


# --- owners -----------------------------------------------------------------------------------------


@law
async def nothing_of_another_owner_is_found(store: SqlStore) -> None:
    await whole_run(store, "run", "conv", "secret", fingerprint="f1")
    await store.begin_run(new_run("other", "conv2", "secret", idempotency=Idempotency("key", "hash")))
    assert await store.run("run", YOU) is None
    assert (await store.events("run", YOU)).events == []
    assert await store.conversation("conv", YOU) is None
    assert await ids(store, YOU) == []
    assert await ids(store, YOU, query="secret") == []
    assert await store.messages("conv", YOU) == []
    assert await store.runs_of("conv", YOU) == []
    assert await store.recent_runs(YOU, 10) == []
    assert await by_fingerprint(store, YOU, "f1") == []
    assert await store.find_run_by_idempotency(YOU, "key") is None
    assert not await store.delete_conversation("conv", YOU)
    assert not await store.change_conversation("conv", YOU, fingerprint="mine")
    conversation = await the_conversation(store)
    assert (conversation.session_id, conversation.fingerprint) == (None, "f1")


@law
async def two_owners_may_use_the_same_names(store: SqlStore) -> None:
    key = Idempotency("key", "hash")
    assert isinstance(await store.begin_run(new_run("a", "conv", "mine", idempotency=key)), Stored)
    assert isinstance(await store.begin_run(new_run("b", "conv", "yours", owner=YOU, idempotency=key)), Stored)
    assert [run.id for run in await store.runs_of("conv", ME)] == ["a"]
    assert [run.id for run in await store.runs_of("conv", YOU)] == ["b"]
    assert await store.find_run_by_idempotency(YOU, "key") == IdempotentRun("b", "hash")
    assert await store.delete_conversation("conv", ME)
    assert await texts(store, owner=YOU) == ["yours"]
    assert await store.unknown_conversations(["conv"]) == []


# --- pages ------------------------------------------------------------------------------------------


@law
async def pages_hold_all_conversations_once_and_the_newest_first(store: SqlStore) -> None:
    for number in range(20):
        at = 1000 + number // 3  # several in the same moment
        await whole_run(store, f"run{number:02}", f"conv{number:02}", f"word {number}", at=at)
    for query in (None, "word"):
        for limit in (1, 3, 7, 20, 100):
            assert await all_pages(store, limit, query) == [f"conv{number:02}" for number in reversed(range(20))]


async def _added_meanwhile(store: SqlStore, query: str | None) -> None:
    for number in range(9):
        await whole_run(store, f"run{number}", f"conv{number}", "word", at=1000 + number)
    found: list[str] = []
    async for page in pages(store, 3, query):
        turn = len(found)
        found += page
        await whole_run(store, f"new{turn}", f"new{turn}", "word", at=9000)
        if query:  # a conversation that is yet to come, and one that was there, go on
            await whole_run(store, f"more{turn}", "conv0", "word", at=9000)
        await whole_run(store, f"again{turn}", "conv8", "word", at=9000)
    assert found == [f"conv{number}" for number in reversed(range(9))]


@law
async def what_is_added_meanwhile_neither_repeats_nor_hides_what_was_listed(store: SqlStore) -> None:
    await _added_meanwhile(store, None)


@law
async def what_is_added_meanwhile_neither_repeats_nor_hides_what_was_found(store: SqlStore) -> None:
    await _added_meanwhile(store, "word")


@law
async def a_conversation_is_found_once_where_its_newest_match_is(store: SqlStore) -> None:
    for number in range(12):
        await whole_run(store, f"run{number}", f"conv{number % 3}", "word", at=1000 + number)
    await whole_run(store, "last", "conv0", "something else", at=5000)
    for limit in (1, 2, 3):
        assert await all_pages(store, limit, "word") == ["conv2", "conv1", "conv0"]


@law
async def a_place_that_never_was_is_refused(store: SqlStore) -> None:
    for query in (None, "word"):
        for before in ("", "x", "ü", "W10", "WzEsIDEsIDFd", "WzFlOTksICJ4Il0", "bnVsbA", "\ud800"):
            with pytest.raises(InvalidRequest, match="not a cursor") as raised:
                await store.conversations(ME, before=before, query=query)
            assert raised.value.param == "before"


# --- search -----------------------------------------------------------------------------------------


@law
async def messages_contents_commands_and_paths_are_found(store: SqlStore) -> None:
    assert {type(document) for document in EVERY_DOCUMENT} == set(get_args(Document))
    await whole_run(store, "run", "conv", "Why does the Übersicht page fail?", documents=EVERY_DOCUMENT)
    await whole_run(store, "other", "other", "Something else")
    for query in (
        "ubersicht page",
        "prose",
        "pytest -k login",
        "src/main.py",
        "main.py",
        "old_name",
        "needle",
        "TOOL_ERR",
    ):
        found = (await store.conversations(ME, query=query)).found
        assert [item.conversation.id for item in found] == ["conv"], query
        assert found[0].snippet
    assert await ids(store, query="page pytest") == ["conv"]  # of the question and of what was done
    assert await ids(store, query="page nothing") == []
    assert await ids(store, query="main/src") == []  # words of one piece stand in their order


@law
async def parts_of_identifiers_and_cjk_words_are_found(store: SqlStore) -> None:
    await whole_run(store, "run", "conv", "Rename getUserName in lib/http_server.py of kit 1.28.3: 修复登录页面を直す")
    await whole_run(store, "other", "other", "Something else: the user has a name")
    for query in (
        *("getUserName", "getusern", "user_name", "get", "name", "http", "http_server", "server.py", "lib/http", "py"),
        *("1.28.3", "1.28", "28.3", "28", "登录", "登录页面", "修", "面を", "修复 直す"),
    ):
        assert "conv" in await ids(store, query=query), query
    assert await ids(store, query="user_name") == ["conv"]
    for query in ("name_user", "http.server.py.lib", "3.28", "录登", "serv lib"):
        assert await ids(store, query=query) == [], query


def _matches(typed: str, text: str) -> bool:
    return matches(search_tokens.query(typed.split()), text)


@law
async def every_engine_finds_what_the_tokens_say(store: SqlStore) -> None:
    tried = 0

    async def try_it(said: list[str], typed: str) -> None:
        nonlocal tried
        tried += 1
        for number, text in enumerate(said):
            await whole_run(store, f"run{tried}.{number}", f"conv{tried}.{number}", text, owner=f"owner{tried}")
        expected = {f"conv{tried}.{number}" for number, text in enumerate(said) if _matches(typed, text)}
        if any(character.isalnum() for character in typed):
            assert set(await ids(store, f"owner{tried}", query=typed)) == expected

    words = st.sampled_from(
        ["user", "userName", "UserName", "user_name", "usernames", "x", "é", "E", "登录", "登", "1.2"]
    )
    some = st.lists(st.tuples(words, st.sampled_from(["", " ", ".", "/"])).map("".join), min_size=1, max_size=4)
    await for_all(try_it, 60, st.lists(some.map("".join), min_size=1, max_size=4), some.map("".join))


@law
async def a_run_is_found_by_its_question_while_it_goes_on(store: SqlStore) -> None:
    await store.begin_run(new_run("run", "conv", "Mend the login"))
    assert await ids(store, query="logi") == ["conv"]
    assert await ids(store, query="log mend") == []  # only the last word may be a beginning


@law_of_two
async def what_one_stores_another_finds(store: SqlStore, other: SqlStore) -> None:
    await store.begin_run(new_run("run", "conv", "Mend the login", idempotency=Idempotency("key", "hash")))
    await store.append(lease("run"), 1, deltas(1, 2))
    assert await other.find_run_by_idempotency(ME, "key") == IdempotentRun("run", "hash")
    assert await everything(other) == deltas(1, 2)
    await store.append(lease("run"), 3, deltas(3), run_end(fingerprint="f1"))
    assert await everything(other) == deltas(1, 2, 3)
    assert await by_fingerprint(other, ME, "f1") == ["conv"]
    assert await ids(other) == ["conv"]
    assert await other.delete_conversation("conv", ME)
    assert await ids(store, query="login") == []
    assert await store.conversation("conv", ME) is None


@law
async def a_query_without_words_finds_nothing_and_an_empty_one_lists_all(store: SqlStore) -> None:
    await whole_run(store, "run", "conv", "Hello!?")
    assert await ids(store, query="!?") == []
    assert await ids(store, query=" ") == ["conv"]


@law
async def any_text_can_be_kept_and_looked_for(store: SqlStore) -> None:
    tried = 0

    async def try_it(said: str, query: str) -> None:
        nonlocal tried
        tried += 1
        said = f"{said} marker{tried}"
        await whole_run(store, f"run{tried}", "conv", said, documents=[text_document(said)])
        kept = (await texts(store))[-2]
        assert kept.replace("\0", "") == re.sub("[\ud800-\udfff]", "\ufffd", said).replace("\0", "")
        await store.conversations(ME, query=query, limit=3)
        assert await ids(store, query=f'"marker{tried}') == ["conv"]
        assert await store.run(f"no {query}", ME) is None
        assert await store.conversation(f"no {query}", ME) is None
        assert await store.find_run_by_idempotency(ME, f"no {query}") is None

    await for_all(try_it, 100, queries, queries)


# --- less -------------------------------------------------------------------------------------------


@law
async def what_is_deleted_is_found_nowhere_at_once(store: SqlStore) -> None:
    await whole_run(store, "other", "other", "word")
    await store.begin_run(new_run("run", "conv", "word", idempotency=Idempotency("key", "hash")))
    await store.append(lease("run"), 1, deltas(1))
    await store.change_conversation("conv", ME, fingerprint="f1")
    assert await store.delete_conversation("conv", ME)
    assert not await store.delete_conversation("conv", ME)
    assert await store.conversation("conv", ME) is None
    assert await store.run("run", ME) is None
    assert (await store.events("run", ME)).events == []
    assert await store.messages("conv", ME) == []
    assert await store.runs_of("conv", ME) == []
    assert [run.id for run, _, _ in await store.recent_runs(ME, 10)] == ["other"]
    assert await store.unfinished_runs() == []
    assert await by_fingerprint(store, ME, "f1") == []
    assert await store.find_run_by_idempotency(ME, "key") is None
    assert await ids(store) == ["other"]
    assert await ids(store, query="word") == ["other"]


@law
async def a_run_that_goes_on_after_its_conversation_was_deleted_is_not_stored(store: SqlStore) -> None:
    await store.begin_run(new_run())
    await store.append(lease("run"), 1, deltas(1))
    assert await store.delete_conversation("conv", ME)
    await store.prune(HistoryLimits(), 0)  # to the last row
    assert isinstance(await store.append(lease("run"), 2, deltas(2)), Fenced)
    assert isinstance(await store.append(lease("run"), 2, deltas(2), run_end()), Fenced)
    assert await store.run("run", ME) is None
    await whole_run(store, "again", "conv", "anew")  # the name is free
    assert [run.id for run in await store.runs_of("conv", ME)] == ["again"]
    assert await texts(store) == ["anew", "Hi"]


@law
async def the_old_go_by_their_age_unless_they_run(store: SqlStore) -> None:
    for day in range(50):
        await whole_run(store, f"run{day}", f"conv{day:02}", f"day {day}", at=day * DAY_MS)
    await store.begin_run(new_run("running", "running", at=0))
    assert await store.prune(HistoryLimits(max_age_seconds=10 * 24 * 3600), 50 * DAY_MS) == 41
    assert await ids(store) == [*(f"conv{day}" for day in range(49, 40, -1)), "running"]
    assert await store.run("run40", ME) is None
    assert await store.prune(HistoryLimits(max_age_seconds=10 * 24 * 3600), 50 * DAY_MS) == 0


@law
async def what_runs_is_kept_whatever_the_limit(store: SqlStore) -> None:
    await whole_run(store, "run", "conv")
    await store.begin_run(new_run("again", "conv"))
    assert await store.prune(HistoryLimits(max_age_seconds=0, max_bytes=0), 10**15) == 0
    assert await ids(store) == ["conv"]


@law
async def each_owner_has_a_share_and_loses_its_own_oldest(store: SqlStore) -> None:
    text = "".join(Random(1).choices(ascii_letters, k=10_000))  # which takes space even if it is compressed
    batch: list[DocumentEvent] = [ContentDelta("doc_001", text)]
    for number, owner in enumerate([ME] + [YOU] * 30):
        await store.begin_run(new_run(f"run{number}", f"conv{number:02}", owner=owner, at=1000 + number))
        await store.append(lease(f"run{number}"), 1, batch)
        if number != 1:  # the oldest of the greedy one goes on
            await store.append(lease(f"run{number}"), 2, [], run_end(at=1000 + number))
    gone = await store.prune(HistoryLimits(max_bytes_per_owner=105_000), 0)
    assert 13 < gone < 20
    assert await ids(store, ME) == ["conv00"]
    assert await ids(store, YOU) == [*(f"conv{number:02}" for number in range(30, gone + 1, -1)), "conv01"]
    assert await store.prune(HistoryLimits(max_bytes_per_owner=105_000), 0) == 0
    assert await store.run(f"run{gone + 1}", YOU) is None


@law
async def files_of_conversations_count_towards_the_limit(store: SqlStore) -> None:
    for number in range(10):
        await whole_run(store, f"run{number}", f"conv{number}", at=1000 + number)
    limit = await store.size() + 100_000_000
    files = {f"conv{number}": 20_000_000 for number in range(10)}
    files["conv_unknown"] = 10**12  # about to be removed: nobody's
    gone = await store.prune(HistoryLimits(max_bytes=limit), 10**6, files)
    assert 5 <= gone <= 6
    assert await ids(store) == [f"conv{number}" for number in range(9, gone - 1, -1)]
    assert await store.prune(HistoryLimits(max_bytes=limit), 10**6, files) == 0


# --- the end ----------------------------------------------------------------------------------------


@law
async def a_history_that_is_used_has_a_size(store: SqlStore) -> None:
    await whole_run(store, "run", "conv")
    assert await store.size() > 0


@law
async def a_store_that_is_closed_says_so(store: SqlStore) -> None:
    await store.begin_run(new_run())
    for _ in range(2):
        await store.close()
    for call in (store.append(lease("run"), 1, []), store.run("run", ME), store.events("run", ME), store.size()):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call
