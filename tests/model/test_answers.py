"""Where a decision holds."""

import pytest

from cursor_gateway.model.answers import Decision, Permission, PermissionEntry


def entry(decision: Decision) -> PermissionEntry:
    return PermissionEntry(
        id="perm_1",
        decision=decision,
        rules=["Shell(npm)"],
        subject="npm test",
        workspace="/w",
        conversation_id="conv_1",
        chat_id="chat_1",
        document_id="doc_001",
        created="2026-10-01T12:00:00Z",
    )


@pytest.mark.parametrize(
    ("decision", "here", "in_the_workspace", "elsewhere"),
    [
        ("conversation", True, False, False),
        ("workspace", True, True, False),
        ("once", False, False, False),
        ("deny", False, False, False),
    ],
)
def test_where_it_holds(decision: Decision, here: bool, in_the_workspace: bool, elsewhere: bool) -> None:
    assert entry(decision).applies_to("conv_1", "/w") is here
    assert entry(decision).applies_to("conv_2", "/w") is in_the_workspace
    assert entry(decision).applies_to("conv_2", "/w/below") is elsewhere


def test_only_a_denial_denies() -> None:
    assert [Permission(one).is_allowed for one in ("once", "conversation", "workspace", "deny")] == [*[True] * 3, False]
