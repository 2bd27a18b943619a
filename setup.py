"""Builds the compiled form of the hot loop over records; everything else is in pyproject.toml.

Without a C compiler the installation goes on, and the same source runs uncompiled.
"""

import warnings

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

HOT = "penstock.records._hot"

GCC_OPTIONS = [
    # The loops call small functions for every field of a record. With these inlined, a scan takes
    # two thirds of the time; gcc's usual limits on the growth of a file keep it from that.
    "-O2",
    "-finline-functions",
    "-finline-limit=4000",
    "--param=inline-unit-growth=1000",
    # Python's own flags make signed overflow wrap, which costs a quarter. _hot.py says where
    # numbers wrap, and compares before it adds everywhere else.
    "-fno-wrapv",
]


class BuildHot(build_ext):
    """Says in plain words what a missing compiler costs."""

    def build_extensions(self) -> None:
        if "gcc" in getattr(self.compiler, "compiler_so", [""])[0]:
            for extension in self.extensions:
                extension.extra_compile_args += GCC_OPTIONS
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CCompilerError, BaseError, OSError) as error:
            warnings.warn(
                f"{ext.name} was not compiled ({error}). Penstock works without it, but encodes "
                "and decodes records many times slower. Install a C compiler and Python's "
                "headers (Debian: gcc, python3-dev), then install Penstock again.",
                stacklevel=1,
            )


setup(
    ext_modules=cythonize(
        [Extension(HOT, ["src/penstock/records/_hot.py"], optional=True)],
        build_dir="build",
        language_level=3,
        compiler_directives={
            # Types come from _hot.pxd; annotations are for mypy.
            "annotation_typing": False,
            # _hot.py compares every position with the end itself.
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
        },
    ),
    cmdclass={"build_ext": BuildHot},
)
