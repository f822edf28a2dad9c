"""Breaks one rule at a time, of security or of text, and checks that its tests notice: `make mutations`."""
