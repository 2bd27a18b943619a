"""The authorization matrix: every API, asked by principals with each single right (X3)."""
