"""Faults in; proof that the gateway holds under them out. `python -m chaos` runs them all."""
