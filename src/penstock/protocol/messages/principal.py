"""The principal inside an Envelope request, as Kafka's own principal builder writes it."""

from penstock.protocol.fields import Message, data


class DefaultPrincipalData(Message):
    INFO = data(versions="0", flexible="0+")

    type: str = ""
    name: str = ""
    token_authenticated: bool = False
