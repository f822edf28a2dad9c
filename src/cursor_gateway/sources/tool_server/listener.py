"""An application in; a server that leaves signals to the gateway and says little, out."""

from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


class Listener(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are the gateway's own business."""
        yield


def listener_for(app: ASGIApp) -> Listener:
    return Listener(
        uvicorn.Config(
            app,
            interface="asgi3",  # it is not seen from a method
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
        )
    )
