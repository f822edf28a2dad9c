"""A test of a UI that needs no agent, no account and no network: the gateway replays a recording.

`cursor-gateway serve --replay DIR` answers with the recordings in a folder, always the same, and at once with
`replay_speed = 0`. `cursor-gateway serve --record DIR` makes them. The UI here is a list of lines; a browser test
starts the gateway in the same way.
"""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from cursor_gateway import Client, ContentDelta, DocumentEnded, DocumentEvent, DocumentStarted, FileEditDocument

RECORDINGS = Path(__file__).with_name("recordings")


class View:
    """The UI under test: a line for each document, which grows while the agent writes."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def push(self, event: DocumentEvent) -> None:
        match event:
            case DocumentStarted(id=id, type=kind):
                self.lines[id] = f"{kind}: "
            case ContentDelta(id=id, text=text):
                self.lines[id] += text
            case DocumentEnded(document=FileEditDocument(id=id, metadata=edit)):
                self.lines[id] = f"{edit.operation} {edit.file_path}"
            case _:
                pass


class ViewTest(unittest.TestCase):
    def setUp(self) -> None:
        data = tempfile.TemporaryDirectory()
        self.addCleanup(data.cleanup)
        environment = {**os.environ, "CURSOR_GATEWAY_DATA_DIR": data.name, "CURSOR_GATEWAY_REPLAY_SPEED": "0"}
        command = ["cursor-gateway", "serve", "--port", "0", "--replay", str(RECORDINGS)]
        gateway = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(gateway.communicate)
        self.addCleanup(gateway.terminate)
        assert gateway.stdout is not None
        address = next(found for line in gateway.stdout if (found := re.search(r"http://[\w.:]+\d", line)))
        self.client = Client(address[0])
        self.addCleanup(self.client.close)

    def test_an_edit_is_shown_with_its_file(self) -> None:
        view = View()
        with self.client.stream("Raise the price to 2") as stream:
            for event in stream:
                view.push(event)
        assert list(view.lines.values()) == [
            "text: I'll change the price.",
            "edit src/price.py",
            "text: The price is 2 now.",
        ]


if __name__ == "__main__":
    unittest.main()
