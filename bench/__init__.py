"""Measurements: `make bench` runs them all and prints each figure beside its target."""
