"""The network, on one event loop, asyncio's or uvloop's: `server/` listens, `client/` connects.

Both cut their streams into frames (`framing.py`). The rest of this page is about the server's side.

Bytes of a socket become frames, frames go to the host (`server.Service`) in order, replies go back
in the same order. The layer knows nothing of what is in a frame.

How it fits together, from the socket up:

    wire.py        owns one non-blocking socket: recv_into, sendmsg, sendfile, reader and writer
    tls_wire.py    the same through TLS, by memory buffers
    connection.py  no I/O: delivers frames, orders replies, decides when nothing more is read
    framing.py     no I/O: cuts the stream into frames, with memory only for bytes that came
    send_queue.py      no I/O: what waits to be sent
    files.py       ranges of files: is it in the page cache, and a thread for what is not
    server.py      listeners, limits, the sweep for idle connections, shutting down
    acceptor.py    accepting on one listener, and when not: no room, or too fast
    limits.py      the limits, and who is let in; host_names.py for hosts that are named there
    tls.py stores.py names.py   Kafka's ssl.* settings as an SSLContext; the name in a certificate

What is not obvious:

- A connection that must not read (held, throttled, too much unsent, too much pipelined) keeps its
  reader until the peer really sends something: the usual request costs no system call for it.
- Bytes that the peer does not read stay at `Limits.max_unsent` and one reply; requests that are not
  answered stay at `Limits.max_pipelined`; requests not begun at one receive buffer.
- Time is looked at once per sweep, not per request: a request only leaves a mark.
"""
