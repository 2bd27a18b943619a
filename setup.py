"""Compiles the modules that have a `.pxd` beside them; everything else is in pyproject.toml.

Without a C compiler the installation goes on, and the same sources run uncompiled.
"""

import warnings
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

DECLARATIONS = sorted(Path("src").glob("penstock/**/*.pxd"))
# A .pxd without a module beside it is what others have in common.
COMPILED = [pxd for pxd in DECLARATIONS if pxd.with_suffix(".py").exists()]

GCC_OPTIONS = [
    # The loops call small functions for every field of a record. With these inlined, a scan takes
    # two thirds of the time; gcc's usual limits on the growth of a file keep it from that.
    "-O2",
    "-finline-functions",
    "-finline-limit=4000",
    "--param=inline-unit-growth=1000",
    # Python's own flags make signed overflow wrap, which costs a quarter. The sources say where
    # numbers wrap, and compare before they add everywhere else.
    "-fno-wrapv",
]


class BuildOptional(build_ext):
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
                f"{ext.name} was not compiled ({error}). Penstock works without it, but handles "
                "records many times slower. Install a C compiler and Python's headers (Debian: "
                "gcc, python3-dev), then install Penstock again.",
                stacklevel=1,
            )


def extension(pxd: Path) -> Extension:
    module = ".".join(pxd.with_suffix("").parts[1:])
    return Extension(module, [str(pxd.with_suffix(".py"))], optional=True)


setup(
    ext_modules=cythonize(
        [extension(pxd) for pxd in COMPILED],
        build_dir="build",
        language_level=3,
        compiler_directives={
            # Types come from the .pxd files; annotations are for mypy.
            "annotation_typing": False,
            # These sources compare every position with the end themselves.
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
        },
    ),
    cmdclass={"build_ext": BuildOptional},
)
