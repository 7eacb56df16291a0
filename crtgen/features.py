"""Features of signals: the same numbers on this computer as on the device."""

from crtgen.network.features import *  # noqa: F403
