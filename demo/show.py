"""Print the image that the demonstration classifies: ``python -m demo.show``."""

from pathlib import Path

import numpy as np

LEVELS = " .:-=+*#%@"

image = np.load(Path(__file__).with_name("digit.npz"))["image"].reshape(8, 8).astype(int)
for row in image:
    print("   ", "".join(LEVELS[(pixel + 128) * (len(LEVELS) - 1) // 255] * 2 for pixel in row))
