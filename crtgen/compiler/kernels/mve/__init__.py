"""Designs for cores with Helium: Cortex-M55 and M85. Importing the package registers them."""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
