"""The model on this computer, in an emulator and, with --crtgen-target board, on a board."""

from pathlib import Path

import numpy as np

DEMO = Path(__file__).resolve().parents[2] / "demo"


def test_every_case(firmware):
    digits = firmware(DEMO / "digits.tflite")
    digits.verify(DEMO / "digits.npz")


def test_a_seven(firmware):
    digits = firmware(DEMO / "digits.tflite", optimize="speed")
    (image,) = np.load(DEMO / "digit.npz").values()
    (probabilities,) = digits.infer(image)
    assert probabilities.argmax() == 7
    if digits.target == "emulator":
        assert digits.instructions < 50_000
