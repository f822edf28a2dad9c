"""A workspace and a chat's id in; what was said in that chat before, out.

A chat belongs to the workspace it began in: the same id elsewhere is another, empty chat. The real store is
a database; here it is JSON under the same name.
"""

import json
import os
import re

from tests.agent import failures
from tests.agent.config import write_whole

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_STORE = "store.db"


def new_id() -> str:
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Chat:
    def __init__(
        self, id: str, directory: str, turns: list[dict[str, str]], program: dict[str, object] | None = None
    ) -> None:
        self.id = id
        self.turns = turns
        self.program = program  # that the last turn ran, and how far it came
        self._directory = directory

    @property
    def directory(self) -> str:
        return self._directory

    def save(self) -> None:
        self._write_transcript()
        write_whole(os.path.join(self._directory, "meta.json"), {"agentId": self.id, "name": "New Agent"})
        kept: dict[str, object] = {} if self.program is None else {"program": self.program}
        write_whole(os.path.join(self._directory, _STORE), {"turns": self.turns, **kept})

    def _write_transcript(self) -> None:
        """In plain lines, beside the chats."""
        for store in ("/chats/", "/acp-sessions/"):
            configuration, found, _ = self._directory.rpartition(store)
            if found and not configuration.endswith("sdk-agent-store"):  # the SDK writes none
                place = os.path.join(configuration, "projects", "standin", "agent-transcripts", self.id)
                os.makedirs(place, exist_ok=True)
                path = os.path.join(place, f"{self.id}.jsonl")
                with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
                    file.writelines(json.dumps(turn) + "\n" for turn in self.turns)


class Sessions:
    def __init__(self, configuration: str, workspace: str) -> None:
        self._directory = os.path.join(configuration, "chats", _md5(workspace))

    def create(self, id: str | None = None) -> Chat:
        if id is not None and not _UUID.fullmatch(id):
            raise failures.not_a_session(id)
        if id is not None and os.path.exists(self._path(id)):
            raise failures.session_in_use(id)
        id = id or new_id()
        return Chat(id, self._path(id), [])

    def resume(self, id: str) -> Chat:
        if back := re.fullmatch("-([1-9][0-9]*)", id):
            return self.newest(int(back[1]))
        if not _UUID.fullmatch(id):
            raise failures.not_a_session(id)
        try:
            with open(os.path.join(self._path(id), _STORE), encoding="utf-8", errors="surrogatepass") as file:
                stored = json.load(file)
                return Chat(id, self._path(id), stored["turns"], stored.get("program"))
        except FileNotFoundError:
            return Chat(id, self._path(id), [])  # an unknown id begins empty, and says nothing about it
        except (ValueError, KeyError, TypeError) as error:
            raise failures.broken_session(id, f"file is not a database ({type(error).__name__})") from error

    def newest(self, back: int = 1) -> Chat:
        try:
            names = [name for name in os.listdir(self._directory) if os.path.exists(self._store(name))]
        except FileNotFoundError:
            names = []
        latest = sorted(names, key=lambda name: os.stat(self._store(name)).st_mtime_ns)
        return self.resume(latest[-back]) if back <= len(latest) else self.create()

    def _path(self, id: str) -> str:
        return os.path.join(self._directory, id)

    def _store(self, id: str) -> str:
        return os.path.join(self._path(id), _STORE)


def _md5(text: str) -> str:
    """Without `hashlib`, whose import would take a tenth of the program's time."""
    try:
        import _md5  # type: ignore[import-not-found] # the type stubs leave it out
    except ImportError:  # a Python that was built without it
        import hashlib as _md5
    digest: str = _md5.md5(os.fsencode(text), usedforsecurity=False).hexdigest()
    return digest
