"""Record batches: the unit that producers send, the log stores and consumers receive."""

from penstock.records import _hot


def hot_is_compiled() -> bool:
    """Whether the loop over records runs compiled (`_hot.py` says what that means)."""
    return not str(_hot.__file__).endswith(".py")
