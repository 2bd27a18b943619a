"""A TLS handshake in memory, which shows whether two contexts trust each other."""

import ssl

_MAX_FLIGHTS = 8
"""A handshake of TLS 1.2 has two flights on each side, with TLS 1.3 there are fewer."""


def handshake_error(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Returns why a client with one context cannot connect to a server with the other, or None."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    for _ in range(_MAX_FLIGHTS):
        for end in ends:
            if end not in waiting:
                continue
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return getattr(error, "verify_message", None) or error.reason or str(error)
        if not waiting:
            return None
    return "the handshake does not end"
