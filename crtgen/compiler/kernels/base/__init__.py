"""Designs for cores without the DSP extension: Cortex-M0+, M3 and others. Importing registers them."""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
