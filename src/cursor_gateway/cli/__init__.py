"""The command `cursor-gateway`. `composition.py` is the only place that chooses the parts of a gateway."""
