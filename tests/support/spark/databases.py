"""Real databases for tests: servers of PostgreSQL and MariaDB from Debian's packages, and SQLite.

A server runs in a temporary directory and listens on a Unix socket there, so that no two tests
share a port. It runs as an unprivileged user if the tests run as root, and never outlives them.
Each test gets an empty database of its own from `fresh()`.

`postgresql` and `mariadb` are fixtures for a conftest.py to import: one server of each kind for a
test process, fast because it need not survive a crash of the machine.
"""

import grp
import os
import pwd
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Self

import pytest
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

START_SECONDS = 30.0
STOP_SECONDS = 30.0
UNPRIVILEGED = "nobody"


class DatabaseError(Exception):
    """A server is missing or failed; the message says which and why."""


def program(name: str, part: str, package: str) -> str:
    """Returns the path of a server's program; Debian does not have all of them on the PATH."""
    directories = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    path = os.pathsep.join([*map(str, directories), os.environ.get("PATH", ""), "/usr/sbin"])
    result = shutil.which(name, path=path)
    if result is None:
        raise DatabaseError(
            f"{part} is missing ({name} was not found): run `make setup-parts`, or install it "
            f"(on Debian: apt-get install {package})"
        )
    return result


def _version(directory: Path) -> int:
    version = directory.parent.name
    return int(version) if version.isdigit() else 0


class DatabaseServer(ABC):
    """A server in a directory of its own.

    With `durable` commits are written to the disk, so that they survive a crash of the machine. As
    a context manager it ends the server and removes its directory.
    """

    name: str
    _stop_signal = signal.SIGTERM

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        # Not below pytest's directories: only root may read those, and the path of a socket is
        # limited to about a hundred characters.
        self.directory = Path(tempfile.mkdtemp(prefix=f"penstock-{self.name}-"))
        self._data = self.directory / "data"
        self._log = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas = count(1)
        self._user: str | None = None
        self._group: str | None = None
        self._groups: list[str] | None = None
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root, and MariaDB warns about it.
            self._user = UNPRIVILEGED
            self._group = grp.getgrgid(pwd.getpwnam(UNPRIVILEGED).pw_gid).gr_name
            self._groups = []
            shutil.chown(self.directory, self._user, self._group)

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()

    @abstractmethod
    def url(self, schema: str) -> URL:
        """Returns SQLAlchemy's address of a database, or of the server without a name."""

    @abstractmethod
    def _prepare(self) -> None:
        """Creates the data directory."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Returns the command that runs the server in the foreground."""

    @property
    @abstractmethod
    def _socket(self) -> Path:
        """Returns the socket of the server."""

    def start(self) -> None:
        """Starts the server, which recovers after `kill`; returns when it accepts connections."""
        if self._process is not None:
            raise DatabaseError(f"{self.name} is running already")
        command = list(self._command())
        # setpriv lets the kernel end the server if the test process is itself killed.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._process is None:
                self._process = self._launch(command)
            elif self._process.poll() is not None and time.monotonic() < deadline:
                # Remains of a killed server may have prevented the start.
                self._process = None
            elif time.monotonic() > deadline:
                raise DatabaseError(f"{self.name} did not start:\n{self._log_end()}")
            # The only sign of readiness is the socket that the server creates.
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills the server and its processes, and reaps them."""
        process = self._running()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        process.wait()
        self._process = None

    def stop(self) -> None:
        """Stops the server cleanly, without waiting for open connections."""
        process = self._running()
        process.send_signal(self._stop_signal)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DatabaseError(f"{self.name} did not stop:\n{self._log_end()}") from None
        self._process = None

    def remove(self) -> None:
        """Ends the server in any state, and removes its directory."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.directory)

    def fresh(self) -> URL:
        """Returns the address of a new, empty database."""
        name = f"test_{next(self._schemas)}"
        # A schema of PostgreSQL is enough, and is created at once.
        self._execute(f"CREATE SCHEMA {name}")
        return self.url(name)

    def _execute(self, statement: str) -> None:
        engine = create_engine(self.url(""), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise DatabaseError(f"{self.name} is not running")
        return self._process

    def _is_ready(self) -> bool:
        try:
            # Drivers leak sockets if there is no server to connect to.
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self._socket))
            self._execute("SELECT 1")
        except (OSError, OperationalError):
            return False
        return True

    def _launch(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                user=self._user,
                group=self._group,
                extra_groups=self._groups,
            )

    def _run(self, command: Sequence[str]) -> None:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            user=self._user,
            group=self._group,
            extra_groups=self._groups,
            text=True,
        )
        if done.returncode:
            raise DatabaseError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}")

    def _log_end(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-30:])


class PostgreSqlServer(DatabaseServer):
    name = "postgresql"
    _stop_signal = signal.SIGINT

    def url(self, schema: str) -> URL:
        query = {"host": str(self.directory)}
        if schema:
            query["options"] = f"-csearch_path={schema}"
        return URL.create("postgresql+psycopg", "penstock", database="postgres", query=query)

    @property
    def _socket(self) -> Path:
        return self.directory / ".s.PGSQL.5432"

    def _prepare(self) -> None:
        initdb = program("initdb", "PostgreSQL", "postgresql")
        options = "--username=penstock --auth=trust --encoding=UTF8 --locale=C --no-sync"
        self._run([initdb, f"--pgdata={self._data}", *options.split()])

    def _command(self) -> Sequence[str]:
        on = "on" if self.durable else "off"
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "fsync": on,
            "synchronous_commit": on,
            "full_page_writes": on,
            "max_connections": "50",
            "shared_buffers": "16MB",
            "autovacuum": "off",
        }
        command = [program("postgres", "PostgreSQL", "postgresql"), "-D", str(self._data)]
        for setting, value in settings.items():
            command += ["-c", f"{setting}={value}"]
        return command


class MariaDbServer(DatabaseServer):
    name = "mariadb"

    def url(self, schema: str) -> URL:
        # Without ssl_disabled every connection loads the system's certificates, which takes 30 ms.
        query = {"unix_socket": str(self._socket), "ssl_disabled": "true"}
        return URL.create("mysql+pymysql", "penstock", database=schema, query=query)

    @property
    def _socket(self) -> Path:
        return self.directory / "socket"

    def _prepare(self) -> None:
        self._run(["mkdir", str(self._data)])
        if self.durable:
            # New files are on the disk only after the first clean stop.
            self.start()
            self.stop()

    def _command(self) -> Sequence[str]:
        # Without grant tables there is nothing to prepare: InnoDB creates its files at the start.
        return [
            program("mariadbd", "MariaDB", "mariadb-server-core"),
            "--no-defaults",
            "--skip-grant-tables",
            "--skip-networking",
            f"--socket={self._socket}",
            f"--datadir={self._data}",
            f"--tmpdir={self.directory}",
            f"--pid-file={self.directory / 'pid'}",
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            "--innodb-log-file-size=16M",
            "--innodb-buffer-pool-size=32M",
            "--character-set-server=latin1",
        ]


def sqlite_url(directory: Path) -> URL:
    """Returns the address of a new, empty database in a file."""
    return URL.create("sqlite", database=str(directory / "database.sqlite"))


@contextmanager
def engine_for(url: URL, *, isolation_level: str | None = None) -> Iterator[Engine]:
    """Yields an engine, whose connections are closed at the end."""
    if isolation_level is not None:
        engine = create_engine(url, isolation_level=isolation_level)
    elif url.get_backend_name() == "sqlite":
        # On a slow disk a session may wait long for its lock.
        engine = create_engine(url, connect_args={"timeout": 60})
        event.listen(engine, "connect", _do_not_wait_for_the_disk)
    else:
        engine = create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _do_not_wait_for_the_disk(connection: sqlite3.Connection, record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    with MariaDbServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """A new, empty database of each kind."""
    kind: str = request.param
    if kind == "sqlite":
        return sqlite_url(tmp_path)
    server: DatabaseServer = request.getfixturevalue(kind)
    return server.fresh()


@pytest.fixture
def engine(database_url: URL) -> Iterator[Engine]:
    """An engine on a new, empty database of each kind."""
    with engine_for(database_url) as engine:
        yield engine
