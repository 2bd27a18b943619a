"""A pause of compiled loops, in which other threads may take the interpreter lock.

This file is never compiled: the interpreter releases its lock between two of its own instructions,
if another thread waits for it, and compiled code has none.
"""

RECORDS_AT_ONCE = 1 << 16
"""How many records a compiled loop handles before it pauses: 19 million of them, in one batch,
would otherwise hold up all other threads for 0.3 s."""


def let_others_run() -> None:
    """Returns after other threads that wait for the interpreter have had their turn."""
