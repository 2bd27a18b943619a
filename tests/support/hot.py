"""The hot loop over records as plain Python, whether or not it was compiled."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import penstock.records

NAME = "penstock_hot_as_plain_python"


def load_plain() -> ModuleType:
    """`_hot.py` itself, under another name, beside the module that Penstock imports."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    path = Path(penstock.records.__path__[0], "_hot.py")
    loader = SourceFileLoader(NAME, str(path))
    spec = spec_from_loader(NAME, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module
    return module
