"""Measurements: `make bench` runs them all and prints each figure with its target."""
