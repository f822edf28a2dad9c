"""Breaks one rule at a time, of security or of what the agent says, and checks that its tests notice: `make mutations`."""
