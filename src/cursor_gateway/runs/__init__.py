"""Runs: started once, numbered, read by anybody, ended for sure."""
