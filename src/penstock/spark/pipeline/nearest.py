"""The name that somebody may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of the names, case apart, if one is similar at all."""
    known = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return known[found[0]] if found else None


def meant(name: str, names: Iterable[str]) -> str:
    """`: did you mean …?`, or else what there is, for the end of a sentence."""
    there = list(names)
    found = nearest(name, there)
    if found is not None:
        return f": did you mean {found}?"
    if not there:
        return ""
    listed = ", ".join(there[:12]) + (", …" if len(there) > 12 else "")
    return f" (there is: {listed})"
