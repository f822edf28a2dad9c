"""A folder in; the gateway's own secret, kept there for the next start, out."""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes, token_hex

_FILE = "secret"
_BYTES = 32


def secret_in(folder: Path) -> bytes:
    """The one that is there, or a new one. Raises `OSError`."""
    path = folder / _FILE
    with suppress(FileNotFoundError):
        if len(kept := _read(path)) == _BYTES:
            return kept
        path.unlink(missing_ok=True)  # cut short: nothing can depend on it
    made = path.with_name(f".{_FILE}.{token_hex(8)}")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(token_bytes(_BYTES))
    try:
        os.link(made, path)  # unless another gateway was faster
    except FileExistsError:
        pass
    except OSError:  # some file systems have no links
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    return _read(path)


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read(_BYTES + 1)
