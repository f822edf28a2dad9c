"""What ends a benchmark: there is no figure, because something did not work."""


class BenchmarkFailed(Exception):
    """Says what did not work, and where that can be seen."""
