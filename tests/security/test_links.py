"""A read-only link gives the right to read one conversation until it is revoked, and no other right."""

import re
from collections.abc import Iterator

import httpx2
import pytest

from cursor_gateway.keys import hash_key
from tests.gateways import RunningGateway
from tests.security.conftest import ALICE
from tests.server.conftest import Json, chat, http_client, standin, unique


def shared(client: httpx2.Client, conversation: str) -> str:
    """The path of a new link."""
    reply = client.post(f"/v1/conversations/{conversation}/link")
    assert reply.status_code == 201
    return httpx2.URL(reply.json()["url"]).path


def ids(client: httpx2.Client) -> list[str]:
    return [one["id"] for one in client.get("/v1/links").json()["conversations"]]


@pytest.fixture
def stranger(keyed_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(keyed_gateway) as made:
        yield made


@pytest.fixture
def hers(alice: httpx2.Client) -> Json:
    return chat(alice, f"{unique()} {standin('text')}")


def test_a_link_is_read_without_a_key_until_it_is_revoked(
    alice: httpx2.Client, stranger: httpx2.Client, hers: Json
) -> None:
    id = hers["conversationId"]
    path = shared(alice, id)
    page = stranger.get(path)
    assert page.status_code == 200
    assert hers["documents"][0]["content"].split()[0] in page.text
    assert id in ids(alice)
    assert alice.get(f"/v1/conversations/{id}").json()["linked"]
    assert alice.delete(f"/v1/conversations/{id}/link").status_code == 204
    assert stranger.get(path).status_code == 404
    assert id not in ids(alice)
    assert alice.delete(f"/v1/conversations/{id}/link").status_code == 404


def test_a_new_link_replaces_the_old_one(alice: httpx2.Client, stranger: httpx2.Client, hers: Json) -> None:
    first, second = (shared(alice, hers["conversationId"]) for _ in range(2))
    assert first != second
    assert (stranger.get(first).status_code, stranger.get(second).status_code) == (404, 200)


def test_only_the_owner_can_create_list_and_revoke_it(alice: httpx2.Client, bob: httpx2.Client, hers: Json) -> None:
    id = hers["conversationId"]
    assert bob.post(f"/v1/conversations/{id}/link").status_code == 404
    shared(alice, id)
    assert id not in ids(bob)
    assert bob.delete(f"/v1/conversations/{id}/link").status_code == 404
    assert id in ids(alice)


def test_without_a_key_nothing_can_be_created_listed_or_revoked(
    alice: httpx2.Client, stranger: httpx2.Client, hers: Json
) -> None:
    id = hers["conversationId"]
    token = shared(alice, id).rpartition("/")[2]
    for headers in ({}, {"authorization": f"Bearer {token}"}, {"x-api-key": token}):  # it is no key
        for method, path in (
            ("POST", f"/v1/conversations/{id}/link"),
            ("DELETE", f"/v1/conversations/{id}/link"),
            ("GET", "/v1/links"),
            ("GET", f"/v1/conversations/{id}"),
            ("GET", f"/v1/chat/{hers['id']}"),
        ):
            assert stranger.request(method, path, headers=headers).status_code == 401


@pytest.mark.parametrize("guess", ["x", "%00", "a" * 5000])
def test_a_guessed_token_leads_nowhere(stranger: httpx2.Client, alice: httpx2.Client, hers: Json, guess: str) -> None:
    token = shared(alice, hers["conversationId"]).rpartition("/")[2]
    assert stranger.get(f"/shared/{token}").status_code == 200
    for wrong in (guess, token[:-1], token + "x", token.swapcase(), hash_key(token)):
        assert stranger.get(f"/shared/{wrong}").status_code == 404
    for path in ("/shared/", "/shared/..%2f..", f"/SHARED/{token}"):  # no links at all
        assert stranger.get(path).status_code in (401, 404)
    assert stranger.get(f"/shared/{hers['conversationId']}").status_code == 404
    assert stranger.get(f"/shared/{hers['id']}").status_code == 404


def test_a_token_has_256_random_bits_and_only_its_hash_is_stored(
    alice: httpx2.Client, hers: Json, keyed_gateway: RunningGateway
) -> None:
    token = shared(alice, hers["conversationId"]).rpartition("/")[2]
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    data = b"".join(file.read_bytes() for file in (keyed_gateway.home / "new" / "data").rglob("*") if file.is_file())
    assert token.encode() not in data
    assert hash_key(token).encode() in data


def test_a_link_shows_nothing_of_another_conversation_and_no_place(
    alice: httpx2.Client, stranger: httpx2.Client, keyed_gateway: RunningGateway, hers: Json
) -> None:
    other = unique()
    chat(alice, f"{other} {standin('text')}")
    workspace = alice.get(f"/v1/conversations/{hers['conversationId']}").json()["workspace"]
    follow = {"conversationId": hers["conversationId"]}
    chat(alice, f"Read {workspace}/src/a.txt in {workspace} {standin('text')}", **follow)
    page = stranger.get(shared(alice, hers["conversationId"])).text
    assert "Read src/a.txt in the folder" in page
    for hidden in (other, workspace, hers["conversationId"], hers["id"], ALICE, "alice"):
        assert hidden not in page


def test_a_link_is_a_page_without_scripts_forms_and_robots(alice: httpx2.Client, stranger: httpx2.Client) -> None:
    hers = chat(alice, f"<script>alert(1)</script> {standin('shell command=ls')}")
    reply = stranger.get(shared(alice, hers["conversationId"]))
    assert reply.headers["x-robots-tag"] == "noindex, nofollow"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["referrer-policy"] == "no-referrer"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert '<meta name="robots" content="noindex, nofollow">' in reply.text
    assert not re.search(r"<(?:script|form|input|textarea|select|img|iframe)\b", reply.text)


def test_a_question_is_shown_without_a_form(alice: httpx2.Client, stranger: httpx2.Client) -> None:
    asked = alice.post("/v1/chat", json={"message": standin("question")}).json()
    page = stranger.get(shared(alice, asked["conversationId"])).text
    assert "Which file is meant?" in page
    assert "notes.txt" in page
    assert not re.search(r"<(?:form|fieldset|input|button)\b", page)


def test_links_are_listed_page_by_page(alice: httpx2.Client) -> None:
    made = [chat(alice, standin("text"))["conversationId"] for _ in range(3)]
    for id in made:
        shared(alice, id)
    first = alice.get("/v1/links", params={"limit": 2}).json()
    assert [one["id"] for one in first["conversations"]] == made[:0:-1]
    second = alice.get("/v1/links", params={"limit": 2, "before": first["next"]}).json()
    assert second["conversations"][0]["id"] == made[0]
    assert alice.get("/v1/links", params={"limit": 1000}).status_code == 400
    assert alice.get("/v1/links", params={"before": "x"}).status_code == 400


def test_a_deleted_conversation_cannot_be_read(alice: httpx2.Client, stranger: httpx2.Client, hers: Json) -> None:
    path = shared(alice, hers["conversationId"])
    assert alice.delete(f"/v1/conversations/{hers['conversationId']}").status_code in (202, 204)
    assert stranger.get(path).status_code == 404


def test_a_link_is_off_unless_the_operator_allows_it(anybody: httpx2.Client) -> None:
    mine = chat(anybody, standin("text"))
    refused = anybody.post(f"/v1/conversations/{mine['conversationId']}/link")
    assert refused.status_code == 403
    assert "public_links" in refused.json()["error"]["message"]
    assert anybody.get("/v1/links").json() == {"conversations": [], "next": None, "canCreate": False}


def test_views_are_limited_for_each_link(alice: httpx2.Client, stranger: httpx2.Client, hers: Json) -> None:
    path = shared(alice, hers["conversationId"])
    codes = {stranger.head(path).status_code for _ in range(70)}
    assert codes == {200, 429}
    other = chat(alice, standin("text"))
    assert stranger.get(shared(alice, other["conversationId"])).status_code == 200
