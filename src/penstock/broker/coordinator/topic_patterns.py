"""Regular expressions of clients: RE2, as in Kafka 4, whose matching time is linear."""

from collections.abc import Callable

from penstock.core.errors import ErrorCode, KafkaError


def matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that matches whole names; raises if the pattern is invalid."""
    # Imported here because few clients use patterns, and the library takes memory.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else reason
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f'"{pattern}" is not a valid regular expression of RE2: {reason}',
        ) from None
    return lambda name: compiled.fullmatch(name) is not None
