"""Regular expressions of clients: RE2, as in Kafka 4, whose matching time is linear.

A pattern is compiled on the event loop, so its size, its Unicode classes and its compiled size are
limited: within these limits compiling takes less than 50 ms. The library caches 128 patterns.
"""

from collections.abc import Callable

from penstock.core.errors import ErrorCode, KafkaError

MAX_PATTERN_BYTES = 8 * 1024
MAX_UNICODE_CLASSES = 64
"""A class such as `\\pL` has hundreds of ranges, and takes as long as hundreds of characters."""
MAX_COMPILED_BYTES = 256 * 1024
"""The memory of a compiled pattern, including the states that matching creates."""

_QUOTED = 200
"""Characters of an invalid pattern that its error message quotes."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that matches whole names.

    Raises KafkaError INVALID_REGULAR_EXPRESSION if the pattern is invalid or exceeds a limit.
    """
    size = len(pattern.encode())
    if size > MAX_PATTERN_BYTES:
        raise _invalid(f"a regular expression of {size} bytes", f"the limit is {MAX_PATTERN_BYTES}")
    classes = pattern.count("\\p") + pattern.count("\\P")
    if classes > MAX_UNICODE_CLASSES:
        raise _invalid(
            f"a regular expression with {classes} Unicode classes",
            f"the limit is {MAX_UNICODE_CLASSES}",
        )
    # Imported here because few clients use patterns, and the library takes memory.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # nested groups would take memory by the square of their number
    options.max_mem = MAX_COMPILED_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        if "too large" in reason:
            reason = f"it takes more than {MAX_COMPILED_BYTES} bytes when it is compiled"
        quoted = pattern if len(pattern) <= _QUOTED else pattern[:_QUOTED] + "…"
        raise _invalid(f'"{quoted}" is not a valid regular expression of RE2', reason) from None
    return lambda name: compiled.fullmatch(name) is not None


def _invalid(what: str, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{what}: {reason}")
