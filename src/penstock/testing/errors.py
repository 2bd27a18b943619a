"""The errors of a broker for tests."""

from penstock.core.errors import StructuredError


class BrokerError(StructuredError):
    """The broker failed to do what a test requested; the message contains the end of its log."""
