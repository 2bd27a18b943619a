"""Real databases for tests: servers of PostgreSQL and MariaDB from Debian's packages, and SQLite.

A server lives in a temporary folder and is reached through a Unix socket there, so that no two
tests share a port. It runs as an unprivileged user when the tests run as root, and never outlives
them. Each test gets an empty database of its own from `fresh()`.

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
    """A server is missing or did not do what it was asked; the message says which and why."""


def program(name: str, part: str, package: str) -> str:
    """Where a server's program is. Debian keeps some of them off the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise DatabaseError(
            f"{part} is missing ({name} was not found): run `make setup-parts`, or install it "
            f"(on Debian: apt-get install {package})"
        )
    return found


def _version(folder: Path) -> int:
    version = folder.parent.name
    return int(version) if version.isdigit() else 0


class DatabaseServer(ABC):
    """A server in a folder of its own.

    `durable` writes to the disk what is committed, so that even a crash of the machine would keep
    it. Used as a context manager, the server and its folder are gone at the end of the block.
    """

    name: str
    _stop_signal = signal.SIGTERM

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        # Not below pytest's folders: only root may look into those, and the path of a socket is
        # limited to about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix=f"penstock-{self.name}-"))
        self._data = self.folder / "data"
        self._log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas = count(1)
        self._user: str | None = None
        self._group: str | None = None
        self._groups: list[str] | None = None
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root, and MariaDB warns of it.
            self._user = UNPRIVILEGED
            self._group = grp.getgrgid(pwd.getpwnam(UNPRIVILEGED).pw_gid).gr_name
            self._groups = []
            shutil.chown(self.folder, self._user, self._group)

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
        """How SQLAlchemy reaches a database of this server; without a name: none in particular."""

    @abstractmethod
    def _prepare(self) -> None:
        """Makes the data folder."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """What runs the server in the foreground."""

    @property
    @abstractmethod
    def _socket(self) -> Path:
        """What the server listens on."""

    def start(self) -> None:
        """Starts, and waits until a connection is served; after `kill` this recovers the data."""
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
                # What a killed server left behind may have kept the new one from starting.
                self._process = None
            elif time.monotonic() > deadline:
                raise DatabaseError(f"{self.name} did not start:\n{self._log_end()}")
            # There is nothing to wait for but the socket that the server is going to make.
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9 of the server and its processes; it is reaped."""
        process = self._running()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        process.wait()
        self._process = None

    def stop(self) -> None:
        """A clean stop, which does not wait for open connections."""
        process = self._running()
        process.send_signal(self._stop_signal)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DatabaseError(f"{self.name} did not stop:\n{self._log_end()}") from None
        self._process = None

    def remove(self) -> None:
        """Ends the server, whatever its state, and removes its folder."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder)

    def fresh(self) -> URL:
        """A new, empty place for tables."""
        name = f"test_{next(self._schemas)}"
        # PostgreSQL's schemas are what others call databases, and made in no time.
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
            # Drivers are not as careful with their sockets when there is nobody to connect to.
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
                cwd=self.folder,
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
            cwd=self.folder,
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
        query = {"host": str(self.folder)}
        if schema:
            query["options"] = f"-csearch_path={schema}"
        return URL.create("postgresql+psycopg", "penstock", database="postgres", query=query)

    @property
    def _socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def _prepare(self) -> None:
        initdb = program("initdb", "PostgreSQL", "postgresql")
        options = "--username=penstock --auth=trust --encoding=UTF8 --locale=C --no-sync"
        self._run([initdb, f"--pgdata={self._data}", *options.split()])

    def _command(self) -> Sequence[str]:
        on = "on" if self.durable else "off"
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
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
        query = {"unix_socket": str(self._socket)}
        return URL.create("mysql+pymysql", "penstock", database=schema, query=query)

    @property
    def _socket(self) -> Path:
        return self.folder / "socket"

    def _prepare(self) -> None:
        self._run(["mkdir", str(self._data)])
        if self.durable:
            # Files that were only just made are not on the disk before the first clean stop.
            self.start()
            self.stop()

    def _command(self) -> Sequence[str]:
        # Without tables of rights there is nothing to prepare: InnoDB makes its files at the start.
        return [
            program("mariadbd", "MariaDB", "mariadb-server-core"),
            "--no-defaults",
            "--skip-grant-tables",
            "--skip-networking",
            f"--socket={self._socket}",
            f"--datadir={self._data}",
            f"--tmpdir={self.folder}",
            f"--pid-file={self.folder / 'pid'}",
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            "--innodb-log-file-size=16M",
            "--innodb-buffer-pool-size=32M",
            "--character-set-server=latin1",
        ]


def sqlite_url(folder: Path) -> URL:
    """A new, empty database in a file."""
    return URL.create("sqlite", database=str(folder / "database.sqlite"))


@contextmanager
def engine_for(url: URL, *, isolation_level: str | None = None) -> Iterator[Engine]:
    """An engine whose connections are closed at the end."""
    if isolation_level is not None:
        engine = create_engine(url, isolation_level=isolation_level)
    elif url.get_backend_name() == "sqlite":
        # Who waits for its lock may be unlucky for long, on a slow disk.
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
