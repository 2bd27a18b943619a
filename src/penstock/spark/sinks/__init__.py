"""Where results go: each sink keeps results, dead letters and offsets in one transaction."""
