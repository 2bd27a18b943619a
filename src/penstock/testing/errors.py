"""What can go wrong with a broker for tests."""


class BrokerError(Exception):
    """The broker did not do what it was asked; the message carries the end of its log."""
