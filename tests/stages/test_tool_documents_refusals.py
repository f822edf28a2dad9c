"""What was not run, and where it can be allowed."""

import pytest
from msgspec import UNSET

from cursor_gateway.model.documents import (
    ClarificationMetadata,
    Document,
    FileEditMetadata,
    Metadata,
    PermissionRequest,
    RefusedCall,
    TerminalCommandMetadata,
    ToolCallMetadata,
    ToolCallResult,
    make_document,
)
from cursor_gateway.stages.tool_documents import Refusals

PERMISSION = PermissionRequest(subject="npm test", rules=["Shell(npm)"])
ERROR = ToolCallResult(status="error", data=None)


def command(text: str = "npm test", **trace: object) -> TerminalCommandMetadata:
    values = {"state": "rejected", "exit_code": -1, "output": "", "duration_ms": 0, "permissions": [], **trace}
    return TerminalCommandMetadata(command=text, **values)  # type: ignore[arg-type]


def calls(*found: Metadata, page_url: str | None = None) -> list[RefusedCall]:
    documents = [make_document(f"doc_{number:03d}", number, None, one) for number, one in enumerate(found, 1)]
    return refused(documents).calls("conv_1", "chat_1", page_url)


def refused(documents: list[Document]) -> Refusals:
    refusals = Refusals()
    for document in documents:
        refusals.push(document)
    return refusals


@pytest.mark.parametrize(
    ("page_url", "link", "url"),
    [
        ("http://127.0.0.1:8787/", "/#/c/conv_1/chat_1/doc_001", "http://127.0.0.1:8787/#/c/conv_1/chat_1/doc_001"),
        ("", "/#/c/conv_1/chat_1/doc_001", UNSET),
        (None, UNSET, UNSET),
    ],
)
def test_what_a_rule_would_allow_has_a_link(page_url: str | None, link: str, url: str) -> None:
    (call,) = calls(command(permission=PERMISSION, reason="No rule."), page_url=page_url)
    assert call == RefusedCall(
        document="doc_001", subject="npm test", rules=["Shell(npm)"], reason="No rule.", link=link, url=url
    )


def test_what_nobody_can_allow_has_none() -> None:
    edit = FileEditMetadata(file_path="a.txt", operation="edit", language="text", state="rejected")
    tool = ToolCallMetadata(
        tool_name="grep", tool_call_id="c", arguments={}, result=ERROR, duration_ms=0, state="rejected"
    )
    found = calls(command("ls"), edit, tool, page_url="")
    assert [(call.subject, call.rules, call.link) for call in found] == [
        ("ls", UNSET, UNSET),
        ("a.txt", UNSET, UNSET),
        ("grep", UNSET, UNSET),
    ]


def test_what_was_run_or_asked_is_not_refused() -> None:
    question = ClarificationMetadata(questions=[], state="rejected")
    refusals = refused([make_document("doc_001", 1, None, one) for one in (command(state=UNSET), question)])
    assert (refusals.count, refusals.calls("", "", None)) == (0, [])


def test_there_are_few_and_they_are_short() -> None:
    documents = [make_document(f"doc_{n:03d}", n, None, command("x" * 1000, reason="y" * 1000)) for n in range(50)]
    refusals = refused(documents)
    found = refusals.calls("conv_1", "chat_1", None)
    assert (refusals.count, len(found)) == (50, 20)
    assert {(len(call.subject), len(call.reason or "")) for call in found} == {(500, 500)}
    assert found[0].subject.endswith("x…")
    copy = refusals.copied()
    refusals.push(documents[0])
    assert (copy.count, refusals.count) == (50, 51)
