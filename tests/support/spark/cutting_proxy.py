"""A proxy between Unix sockets that cuts a connection when certain bytes pass."""

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from sqlalchemy import URL


def socket_of(url: URL) -> Path:
    """Returns the socket of a database server."""
    if url.get_backend_name() == "postgresql":
        return Path(str(url.query["host"])) / ".s.PGSQL.5432"
    return Path(str(url.query["unix_socket"]))


def through(url: URL, proxy: "CuttingProxy") -> URL:
    """Returns the address of the database behind the proxy, whose path ends as the server's."""
    if url.get_backend_name() == "postgresql":
        return url.update_query_dict({"host": str(proxy.path.parent)})
    return url.update_query_dict({"unix_socket": str(proxy.path)})


class CuttingProxy:
    """Listens at `path` and forwards everything to the socket `server`."""

    def __init__(self, server: Path, path: Path) -> None:
        self.path = path
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._word: bytes | None = None
        self._after = b""
        self._forward = False
        self.has_cut = False

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *raised: object) -> None:
        # Closing alone does not wake up a thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def cut_next(self, word: bytes, *, forward: bool, after: bytes = b"") -> None:
        """Cuts the connection when the client next sends these bytes, before or after forwarding.

        Applies only after the client has sent `after`.
        """
        self._after = after
        self._forward = forward
        self.has_cut = False
        self._word = word

    def _start(self, target: object, *args: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._pass_back, args=(client, server))
            back.start()
            with suppress(OSError):
                while data := client.recv(65536):
                    if self._after in data:
                        # Empty bytes are in all bytes.
                        self._after = b""
                    if not self._after and self._word is not None and self._word in data:
                        self._word = None
                        # The client receives nothing more, whatever the server sends.
                        client.shutdown(socket.SHUT_RDWR)
                        self.has_cut = True
                        if self._forward:
                            server.sendall(data)
                        break
                    server.sendall(data)
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)
            back.join()

    @staticmethod
    def _pass_back(client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                with suppress(OSError):
                    client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
