"""Count the turns of a model by its output and tool calls."""

from msgspec import Struct


class Turns(Struct):
    """A turn is the model's output and the calls it makes, up to their results."""

    _count: int = 0
    is_open: bool = False  # the model has written or called something since the last results
    _unnamed: bool = False  # a call is open, and it is not known yet whether it belongs to a new turn
    _model_call: str | None = None

    @property
    def count(self) -> int:
        return self._count + self._unnamed

    def output(self) -> None:
        if not self.is_open:
            self.is_open = True
            self._count += 1

    def tool(self, model_call: str | None) -> None:
        """A call may end before the next one of the same turn starts; `model_call`, the turn's id, decides."""
        if model_call is None:
            self._unnamed = self._unnamed or not self.is_open
        else:
            is_new = model_call != self._model_call
            if is_new and (self._unnamed or not self.is_open):
                self._count += 1
            self._unnamed = False
            self._model_call = model_call
        self.is_open = True

    def end(self) -> None:
        """A call has ended, or the agent that made it."""
        self._count += self._unnamed
        self.is_open = self._unnamed = False
