"""Folders for conversations that are about to begin, made ahead of time.

Making a folder can take a tenth of a millisecond, and a new conversation needs two. So a thread makes some, elsewhere,
and a conversation that begins gets one by renaming it.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cursor_gateway.sources.private_files import private_folder

_FEW, _MANY = 8, 24  # below the first, more are made, up to the second


class FreshFolders:
    def __init__(self, base: Path, place: Path, names: Sequence[str]) -> None:
        """They are made in `place`, which is `base` or below it; `names` are the folders in each of them."""
        self._base, self._place, self._names = str(base), str(place), names
        self._ready: list[str] = []
        self._made = 0
        self._making: asyncio.Future[None] | None = None

    def move_to(self, folder: int, name: str) -> bool:
        """Gives one that name in the folder with this descriptor. False: there is none."""
        if len(self._ready) < _FEW and (self._making is None or self._making.done()):
            self._making = asyncio.get_running_loop().run_in_executor(None, self._make)
        if not self._ready:
            return False
        try:
            os.rename(self._ready.pop(), name, dst_dir_fd=folder)
        except OSError:  # it is gone, or the name is taken
            return False
        return True

    def _make(self) -> None:
        """In a thread: nothing else changes `_made`, and `_ready` only gets shorter meanwhile."""
        # Each call into the system gives the interpreter to the event loop, which this thread then has to take back.
        with suppress(OSError), private_folder(self._base, self._place) as place:  # missing ones are made when needed
            while len(self._ready) < _MANY:
                self._made += 1
                os.mkdir(str(self._made), 0o700, dir_fd=place)
                for name in self._names:
                    os.mkdir(f"{self._made}/{name}", 0o700, dir_fd=place)
                self._ready.append(f"{self._place}/{self._made}")
