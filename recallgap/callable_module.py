"""A package that is named after its main function, such as `recallgap.evaluate`, can be called like it.

Python binds a package to its parent as soon as anything in it is imported, which hides the function of that
name: `rg.evaluate(...)` would work once and then fail.
"""

import sys
from types import ModuleType


class _CallableModule(ModuleType):
    def __call__(self, *args, **kwargs):
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def make_callable(name):
    """Let the package `name` be called as its function of the same name."""
    sys.modules[name].__class__ = _CallableModule
