"""Features of signals, computed between a sensor's samples and a network.

``Features`` computes on this computer, bit for bit, the values that the generated C computes on a device.
"""

from crtgen.network.features.extractor import Features, changed
from crtgen.network.features.like import Likeness, like
from crtgen.network.features.presets import PRESETS, settings_of
from crtgen.network.features.settings import (
    FeatureSettings,
    ImageSettings,
    MelSettings,
    MicroSettings,
    VibrationSettings,
)

__all__ = [
    "PRESETS",
    "FeatureSettings",
    "Features",
    "ImageSettings",
    "Likeness",
    "MelSettings",
    "MicroSettings",
    "VibrationSettings",
    "changed",
    "like",
    "settings_of",
]
