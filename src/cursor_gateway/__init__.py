"""Cursor's agent as ordered, typed documents.

>>> from cursor_gateway import RunInfo, read_response
>>> line = b'{"type":"assistant","message":{"content":[{"type":"text","text":"Hello!"}]}}'
>>> done = b'{"type":"result","subtype":"success","result":"Hello!","duration_ms":12}'
>>> response = read_response([line, b"\\n", done], RunInfo(id="chat_1", created="2026-02-23T10:30:00Z"))
>>> response.status, response.documents[0].content
('completed', 'Hello!')
"""

import typing

if typing.TYPE_CHECKING:
    from cursor_gateway.library import *  # noqa: F403 -- all names of that module are public
else:

    def __getattr__(name: str) -> object:
        """The library comes when a program uses a name of it: the command starts without."""
        if name == "__all__" or not name.startswith("_"):
            import cursor_gateway.library as library

            globals().update({public: getattr(library, public) for public in library.__all__}, __all__=library.__all__)
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
