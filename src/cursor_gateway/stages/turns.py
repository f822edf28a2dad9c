"""What a model says and calls in; how many turns that were out."""


class Turns:
    """A turn is what the model says and the calls it makes, up to the results it is given."""

    def __init__(self) -> None:
        self._count = 0
        self._open = False
        self._unnamed = False  # a call is open, and whether it belongs to a new turn is not known yet
        self._model_call: str | None = None

    @property
    def count(self) -> int:
        return self._count + self._unnamed

    @property
    def is_open(self) -> bool:
        """The model has said or called something since it was given the last results."""
        return self._open

    def output(self) -> None:
        if not self._open:
            self._open = True
            self._count += 1

    def tool(self, model_call: str | None) -> None:
        """A call may end before the next one of the same turn starts; the agent's own name of the turn tells."""
        if model_call is None:
            self._unnamed = self._unnamed or not self._open
        else:
            is_new = model_call != self._model_call
            if is_new and (self._unnamed or not self._open):
                self._count += 1
            self._unnamed = False
            self._model_call = model_call
        self._open = True

    def tool_ended(self) -> None:
        self.end()

    def end(self) -> None:
        self._count += self._unnamed
        self._open = self._unnamed = False
