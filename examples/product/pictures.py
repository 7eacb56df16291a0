"""Writes pictures.h: what the camera of the product sees, ten recorded pictures of digits.

usage: python pictures.py FILE
"""

import sys
from pathlib import Path

import numpy as np

DEMO = Path(__file__).resolve().parents[2] / "demo"
COUNT = 10


def main(file: Path) -> None:
    """Take the first pictures of the demonstration; the known one is a seven."""
    images = np.load(DEMO / "digits_images.npz")["image"][:COUNT].reshape(COUNT, -1)
    (known,) = np.load(DEMO / "digit.npz").values()
    pictures = [*images, known.reshape(-1)]
    rows = (", ".join(f"{pixel:.1f}f" for pixel in picture) for picture in pictures)
    lines = "\n".join(f"    {{{row}}}," for row in rows)
    file.write_text(
        f"#define PICTURES {COUNT}u\n#define KNOWN_PICTURE {COUNT}\n#define KNOWN_DIGIT 7\n"
        f"static const float pictures[{len(pictures)}][{len(pictures[0])}] = {{\n{lines}\n}};\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
