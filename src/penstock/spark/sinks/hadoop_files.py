"""Files of any file system that Spark knows, through the driver's JVM."""

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """Files below a folder; see `commit_log.Files` for what is promised.

    A local file system has hard links, which are made once by whoever is first. Elsewhere a file is
    renamed to its name unless that is taken, as Spark does for its own checkpoints.
    """

    def __init__(self, spark: "SparkSession", root: str, *, is_local: bool | None = None) -> None:
        jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._fs_package = jvm.org.apache.hadoop.fs
        self._conf = spark._jsc.hadoopConfiguration()
        given = self._fs_package.Path(root)
        self._fs = given.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(given)
        self.root: str = self._root.toString()
        self._is_local = self._fs.getScheme() == "file" if is_local is None else is_local

    def names(self, folder: str) -> list[str]:
        from py4j.protocol import Py4JJavaError

        try:
            return [each.getPath().getName() for each in self._fs.listStatus(self._path(folder))]
        except Py4JJavaError as error:
            if _is(error, "java.io.FileNotFoundException"):
                return []
            raise

    def read(self, path: str) -> bytes:
        stream = self._fs.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def create(self, path: str, content: bytes) -> bool:
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4()}.tmp"
        self._fs.mkdirs(self._path(folder))
        if self._is_local:
            return _link(self._local(temporary), self._local(path), content)
        stream = self._fs.create(self._path(temporary), False)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        is_made = self._rename_once(temporary, path)
        if not is_made:
            self.delete(temporary)
        return is_made

    def rename(self, source: str, target: str) -> bool:
        from py4j.protocol import Py4JJavaError

        try:
            return bool(self._fs.rename(self._path(source), self._path(target)))
        except Py4JJavaError as error:
            if _is(error, "java.io.FileNotFoundException"):
                return False
            raise

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def _rename_once(self, source: str, target: str) -> bool:
        from py4j.protocol import Py4JJavaError

        context = self._fs_package.FileContext.getFileContext(self._root.toUri(), self._conf)
        kind = getattr(self._fs_package, "Options$Rename")
        options = self._gateway.new_array(kind, 1)
        options[0] = kind.NONE
        try:
            context.rename(self._path(source), self._path(target), options)
        except Py4JJavaError as error:
            if _is(error, "org.apache.hadoop.fs.FileAlreadyExistsException"):
                return False
            raise
        return True

    def _path(self, path: str) -> Any:
        return self._fs_package.Path(self._root, path) if path else self._root

    def _local(self, path: str) -> Path:
        return Path(unquote(urlparse(self.root).path)) / path


def _link(temporary: Path, target: Path, content: bytes) -> bool:
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def _is(error: Any, name: str) -> bool:
    """Whether a Java exception is of this class."""
    return str(error.java_exception.getClass().getName()) == name
