"""The real agent's output, converted: the one thing that recordings cannot tell is what it writes today."""

import json
import os
import shutil
import subprocess

import pytest

from cursor_gateway import RunInfo, TextDocument, read_response

AGENT = shutil.which("cursor-agent")
REASON = "needs the real agent: install cursor-agent, log in, and run `CURSOR_GATEWAY_LIVE=1 pytest -m live`"


@pytest.mark.live
@pytest.mark.skipif(os.environ.get("CURSOR_GATEWAY_LIVE") != "1" or AGENT is None, reason=REASON)
def test_what_the_agent_says_now_is_what_its_result_says() -> None:
    assert AGENT is not None
    ran = subprocess.run(
        [
            *(AGENT, "-p", "--output-format", "stream-json", "--stream-partial-output"),
            "Reply with the single word: alpha",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    reply = f"{ran.stdout.decode(errors='replace')}\n{ran.stderr.decode(errors='replace')}"
    assert ran.returncode == 0, reply
    response = read_response([ran.stdout], RunInfo(id="chat_live", created="2026-02-23T10:30:00Z", fences="inline"))
    [result] = [record["result"] for record in map(json.loads, ran.stdout.splitlines()) if record["type"] == "result"]
    text = "".join(document.content for document in response.documents if isinstance(document, TextDocument))
    assert (response.status, text) == ("completed", result), reply
