"""Files on any file system that Spark supports, accessed through the driver's JVM."""

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """The files below a directory; see `commit_log.Files` for the guarantees of the methods.

    On a local file system `create` uses hard links, which only one process can create. Elsewhere it
    renames a temporary file without overwriting, as Spark does for its checkpoints.
    """

    def __init__(self, spark: "SparkSession", root: str, *, is_local: bool | None = None) -> None:
        jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._fs_package = jvm.org.apache.hadoop.fs
        self._conf = spark._jsc.hadoopConfiguration()
        path = self._fs_package.Path(root)
        self._fs = path.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(path)
        self.root: str = self._root.toString()
        self._is_local = self._fs.getScheme() == "file" if is_local is None else is_local

    def names(self, directory: str) -> list[str]:
        from py4j.protocol import Py4JJavaError

        try:
            statuses = self._fs.listStatus(self._path(directory))
            return [status.getPath().getName() for status in statuses]
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
        directory, _, name = path.rpartition("/")
        temporary = f"{directory}/.{name}.{uuid.uuid4()}.tmp"
        self._fs.mkdirs(self._path(directory))
        if self._is_local:
            return _link(self._local(temporary), self._local(path), content)
        stream = self._fs.create(self._path(temporary), False)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        is_created = self._rename_once(temporary, path)
        if not is_created:
            self.delete(temporary)
        return is_created

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
        rename_option = getattr(self._fs_package, "Options$Rename")
        options = self._gateway.new_array(rename_option, 1)
        options[0] = rename_option.NONE
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
