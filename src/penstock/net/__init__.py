"""The network, on one event loop, asyncio's or uvloop's: `server/` listens, `client/` connects.

Both cut their streams into frames (`framing.py`). The rest of this page is about the server.

The bytes of a socket become frames. They are delivered in order to the `Service`, the broker's
dispatcher, and its responses are sent in the same order. The layer does not know what a frame
contains.

The modules of `server/`, from the socket up:

    transport.py      owns one non-blocking socket: recv_into, sendmsg, sendfile, reader and writer
    tls_transport.py  the same through TLS, with memory BIOs
    connection.py     no I/O: delivers frames, orders responses, decides when to stop reading
    send_queue.py     no I/O: what is to be sent
    file_ranges.py    ranges of files: whether they are in the page cache, a thread if they are not
    socket_server.py  listeners, limits, the sweep for idle connections, shutdown
    acceptor.py       accepts on one listener, and pauses it
    limits.py         the limits and the admission of connections; host_names.py resolves names
    ../tls/           Kafka's `ssl.*` settings as an SSLContext; the name in a certificate

Not obvious:

- A connection that must not read (held, throttled, too many unsent bytes or pending responses)
  keeps its reader until the peer really sends something, which saves two system calls per request.
- Memory per connection is bounded: unsent bytes by `Limits.max_unsent` plus one response, pending
  responses by `Limits.max_pipelined`, queued requests by one receive buffer.
- The clock is read once per sweep, not per request: a request only sets `Connection.active`.
"""
