"""Suggestions for misspelt names, for the end of an error message."""

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_LISTED = 12


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Returns the most similar of the names, ignoring case; None if none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[matches[0]] if matches else None


def suggestion(name: str, names: Iterable[str]) -> str:
    """Returns `: did you mean …?`, or a list of the names that exist, or nothing without any."""
    candidates = list(names)
    similar = nearest_name(name, candidates)
    if similar is not None:
        return f": did you mean {similar}?"
    if not candidates:
        return ""
    listed = ", ".join(candidates[:_MAX_LISTED])
    return f" (there is: {listed}{', …' if len(candidates) > _MAX_LISTED else ''})"
