"""External code generators: write a ``Generator`` and register it in the entry points ``crtgen.codegen``."""

from crtgen.compiler.byoc import *  # noqa: F403
from crtgen.compiler.kernels import Const as Const
