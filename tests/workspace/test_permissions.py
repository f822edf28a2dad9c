"""Decisions are kept for their owner, once for each document, and survive what happens to files."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cursor_gateway.errors import ApprovalForbidden, InvalidRequest
from cursor_gateway.model.answers import Decision, Permission, PermissionEntry
from cursor_gateway.model.documents import PermissionRequest
from cursor_gateway.workspace import permissions as module
from cursor_gateway.workspace.permissions import Permissions

NPM = PermissionRequest(subject="npm test", rules=["Shell(npm)"])


def kept(folder: Path, *, can_allow: bool = True) -> Permissions:
    return Permissions(folder, lambda: 1_790_000_000_000, can_allow=can_allow)


def record(
    permissions: Permissions, decision: Decision, document: str = "doc_001", owner: str = "ada"
) -> PermissionEntry:
    return permissions.record(owner, ("/w", "conv_1"), ("chat_1", document), NPM, Permission(decision))


def test_a_decision_is_kept_once(tmp_path: Path) -> None:
    first = record(kept(tmp_path), "conversation")
    assert record(kept(tmp_path), "conversation") == first  # also by another process
    assert kept(tmp_path).every("ada") == [first]
    assert first.created == "2026-09-21T14:13:20Z"
    with pytest.raises(InvalidRequest, match=f"already decided: conversation; revoke it .*{first.id}"):
        record(kept(tmp_path), "deny")


def test_rules_hold_where_they_were_allowed_and_for_their_owner(tmp_path: Path) -> None:
    permissions = kept(tmp_path)
    record(permissions, "conversation")
    assert permissions.rules("ada", "conv_1", "/w") == ["Shell(npm)"]
    assert permissions.rules("ada", "conv_2", "/w") == permissions.rules("bob", "conv_1", "/w") == []
    record(permissions, "workspace", "doc_002")
    assert permissions.rules("ada", "conv_1", "/w") == ["Shell(npm)"]  # once
    assert permissions.rules("ada", "conv_2", "/w") == ["Shell(npm)"]
    record(permissions, "workspace", owner="bob")
    permissions.forget_conversation("conv_1")
    (rule,) = permissions.every("ada")
    assert (rule.decision, rule.subject, rule.conversation_id, rule.chat_id) == ("workspace", "", "", "")
    assert len(permissions.every("bob")) == 1
    assert permissions.revoke("ada", permissions.every("ada")[0].id)
    assert not permissions.revoke("ada", "perm_unknown")
    assert permissions.rules("ada", "conv_2", "/w") == []


def test_an_operator_who_lets_nobody_allow_anything(tmp_path: Path) -> None:
    record(kept(tmp_path), "workspace")
    off = kept(tmp_path, can_allow=False)
    assert off.rules("ada", "conv_1", "/w") == []
    off.check([Permission("deny", "No.")])
    with pytest.raises(ApprovalForbidden, match="`permissions` is `deny`"):
        off.check([Permission("deny"), Permission("once")])


def test_where_nothing_was_allowed_nothing_is_made(tmp_path: Path) -> None:
    kept(tmp_path).forget_conversation("conv_1")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_allows_nothing(tmp_path: Path) -> None:
    permissions = kept(tmp_path)
    record(permissions, "workspace")
    (file,) = (tmp_path / "permissions").glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("no JSON")
    assert permissions.rules("ada", "conv_1", "/w") == []
    assert permissions.every("ada") == []
    file.unlink()
    file.mkdir()
    assert permissions.rules("ada", "conv_1", "/w") == []


def test_at_once_none_is_lost(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: record(kept(tmp_path), "once", f"doc_{number}"), range(40)))
    assert len(kept(tmp_path).every("ada")) == 40


def test_of_too_many_the_oldest_decisions_go_before_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    permissions = kept(tmp_path)
    record(permissions, "workspace", "doc_0")
    for number in range(1, 5):
        record(permissions, "once", f"doc_{number}")
    assert [entry.document_id for entry in permissions.every("ada")] == ["doc_4", "doc_3", "doc_0"]
    for number in range(5, 9):
        record(permissions, "conversation", f"doc_{number}")
    assert [entry.document_id for entry in permissions.every("ada")] == ["doc_8", "doc_7", "doc_6"]
