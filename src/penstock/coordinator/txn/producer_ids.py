"""Producer ids come from outside: a decision that needs one waits until it is given."""


class ProducerIdRequired(Exception):  # noqa: N818 - not an error: the host brings the id
    """The event must be handled again, with a producer id that nobody had before."""


def given(new_producer_id: int | None) -> int:
    """The id, which a decision now needs."""
    if new_producer_id is None:
        raise ProducerIdRequired
    return new_producer_id
