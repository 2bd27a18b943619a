"""Lists of names in messages."""

from collections.abc import Sequence

_MAX_NAMES = 5


def shorten_names(names: Sequence[str]) -> str:
    """Returns the first few names, and how many more there are."""
    text = ", ".join(names[:_MAX_NAMES])
    rest = len(names) - _MAX_NAMES
    return f"{text} and {rest} more" if rest > 0 else text
