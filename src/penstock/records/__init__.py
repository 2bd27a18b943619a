"""Record batches: the unit that producers send, the log stores and consumers receive."""

from penstock.records import _decode, _encode, _murmur2


def is_compiled() -> bool:
    """Returns whether the loops over records run compiled; see `_decode.py`."""
    return not any(str(module.__file__).endswith(".py") for module in (_encode, _murmur2, _decode))
