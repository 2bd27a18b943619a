"""The errors of a broker for tests."""


class BrokerError(Exception):
    """The broker failed to do what a test requested; the message contains the end of its log."""
