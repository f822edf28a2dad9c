"""The command `cursor-gateway`: the only place that chooses, waits, reads clocks and makes ids."""
