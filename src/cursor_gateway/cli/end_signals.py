"""The signals that end a command: they cancel what it does, so that its agent ends first."""

import asyncio
import signal

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class EndSignals:
    def __init__(self) -> None:
        self.received: list[int] = []

    def listen(self) -> None:
        """From the task that is to be cancelled. Again, if something else has taken the signals meanwhile."""
        task = asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            self.received.append(number)
            task.cancel()

        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
                asyncio.get_running_loop().add_signal_handler(number, end, number)
