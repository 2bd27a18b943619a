"""The type of objects in Spark's JVM."""

from typing import Any, TypeAlias

JavaObject: TypeAlias = Any
"""py4j has no static types: it looks up attributes by name at run time."""
