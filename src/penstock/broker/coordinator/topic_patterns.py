"""Regular expressions of clients, as Kafka 4 takes them: RE2's, which never take long to match."""

from collections.abc import Callable

from penstock.core.errors import ErrorCode, KafkaError


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name matches as a whole; KafkaError where the pattern is none."""
    # Few clients use patterns, and the library costs memory.
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
            f'"{pattern}" is no regular expression of RE2: {reason}',
        ) from None
    return lambda name: compiled.fullmatch(name) is not None
