"""The exceptions of crtgen, and the exit code of each."""

from crtgen.base.errors import *  # noqa: F403
