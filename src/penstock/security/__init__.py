"""Who may come in, what they may do and how fast: pure machines, no I/O."""
