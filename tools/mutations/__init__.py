"""Breaks one security rule at a time and checks that its tests notice: `make mutations`."""
