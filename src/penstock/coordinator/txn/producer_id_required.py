"""New producer ids come from the host: a decision that needs one is repeated with it."""


class ProducerIdRequired(Exception):  # noqa: N818 - not an error: the host provides the id
    """The event must be handled again, with a producer id that no producer has had."""


def require_producer_id(new_producer_id: int | None) -> int:
    """Returns the id; raises `ProducerIdRequired` if the host has not provided one."""
    if new_producer_id is None:
        raise ProducerIdRequired
    return new_producer_id
