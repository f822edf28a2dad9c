"""Calls of a runner's methods, as bytes."""

import inspect

import msgspec
import pytest

from cursor_gateway.cluster.commands import MethodCall, ReviewChanges, arguments_of, call, command_of, encode
from cursor_gateway.model.changes import (
    CommitRequest,
    KeepRequest,
    ListRequest,
    PatchRequest,
    RevertRequest,
    ReviewRequest,
)
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.store.base import ConversationRecord
from cursor_gateway.workspace.host import AttachedImage, Host, LocalHost

CONVERSATION = ConversationRecord(
    id="conv_1",
    owner="me",
    title="Hi",
    workspace="/w",
    mode="agent",
    model="auto",
    created_ms=1,
    updated_ms=1,
    session_id=None,
    fingerprint=None,
    is_running=False,
)


def sent(call: MethodCall) -> MethodCall:
    received = command_of(encode(call))
    assert isinstance(received, MethodCall)
    return received


def test_a_call_has_the_arguments_of_its_method() -> None:
    assert arguments_of(sent(call(Host.models))) == {}
    assert arguments_of(sent(call(RunService.cancel, "chat_1", owner="me"))) == {"id": "chat_1", "owner": "me"}
    place = AttachedImage("image_1.png")
    found = arguments_of(sent(call(Host.image, CONVERSATION, place)))
    assert found == {"conversation": CONVERSATION, "place": place}


@pytest.mark.parametrize(
    "method", ["cancel", "remove", "models", "files", "folders", "image", "permissions", "revoke_permission"]
)
def test_a_runner_has_each_method_with_the_same_arguments(method: str) -> None:
    kinds = (RunService, LocalRunService) if hasattr(RunService, method) else (Host, LocalHost)
    asked, there = (inspect.signature(getattr(kind, method)) for kind in kinds)
    assert list(asked.parameters) == list(there.parameters)


@pytest.mark.parametrize(
    "wrong",
    [
        MethodCall("drain", {"seconds": msgspec.Raw(msgspec.msgpack.encode(0))}),
        MethodCall("cancel", {"id": msgspec.Raw(msgspec.msgpack.encode("chat_1"))}),
        call(RunService.cancel, 1, "me"),
    ],
    ids=["a method that runners do not carry out for others", "an argument is missing", "an argument of another type"],
)
def test_other_calls_are_refused(wrong: MethodCall) -> None:
    with pytest.raises(msgspec.DecodeError):
        arguments_of(sent(wrong))


def test_arguments_of_a_newer_version_are_ignored() -> None:
    asked = call(RunService.cancel, "chat_1", "me")
    newer = MethodCall(asked.method, {**asked.arguments, "why": msgspec.Raw(msgspec.msgpack.encode("x"))})
    assert arguments_of(sent(newer)) == {"id": "chat_1", "owner": "me"}


@pytest.mark.parametrize(
    "request_",
    [
        ListRequest("chat_1"),
        PatchRequest("chat_1", "a.py", 5, only_open=True),
        RevertRequest(path="a.py", hunks=[1], version="v"),
        KeepRequest(path="a.py"),
        CommitRequest(message="m", token="t"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_request_about_changes_arrives_as_it_was_sent(request_: ReviewRequest) -> None:
    received = command_of(encode(ReviewChanges.of(CONVERSATION, request_)))
    assert isinstance(received, ReviewChanges)
    assert (received.conversation, received.decoded()) == (CONVERSATION, request_)


def test_a_request_about_changes_of_a_newer_version_is_refused() -> None:
    newer = ReviewChanges(CONVERSATION, "explain", msgspec.Raw(msgspec.msgpack.encode({})))
    received = command_of(encode(newer))
    assert isinstance(received, ReviewChanges)
    with pytest.raises(msgspec.DecodeError):
        received.decoded()
