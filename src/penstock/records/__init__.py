"""Record batches: the unit that producers send, the log stores and consumers receive."""

from penstock.records import _fill, _hash, _hot


def hot_is_compiled() -> bool:
    """Whether the loops over records run compiled (`_hot.py` says what that means)."""
    return not any(str(module.__file__).endswith(".py") for module in (_fill, _hash, _hot))
