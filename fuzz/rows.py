"""What was done with one target, as a line of the table."""

from msgspec import Struct

HEADING = f"{'target':16} {'runs':>9} {'runs/s':>8} {'edges':>7} {'new':>6}  broken"


class Row(Struct, frozen=True):
    target: str
    runs: int
    seconds: float
    edges: int  # of the gateway's code
    new: int  # inputs that reach something that the corpus does not
    breaches: list[str]

    @property
    def rate(self) -> float:
        return self.runs / self.seconds if self.seconds else 0

    @property
    def line(self) -> str:
        result = ", ".join(self.breaches) or "none"
        return f"{self.target:16} {self.runs:>9} {self.rate:>8.0f} {self.edges:>7} {self.new:>6}  {result}"
