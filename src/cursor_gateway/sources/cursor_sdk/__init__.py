"""Runs of Cursor's agent by its Python SDK: one bridge process for the whole gateway."""
