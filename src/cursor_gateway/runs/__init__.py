"""Runs: each is started once, its events are numbered, any number of readers follow it, and it always ends."""
