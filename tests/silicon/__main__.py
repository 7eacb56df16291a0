"""Writes the golden files of boards anew: ``CRTGEN_SVD=FOLDER python -m tests.silicon BOARD...``."""

import sys

from tests.silicon.log import SVD, golden_file, log_of
from tests.silicon.started import demo_image, start

for name in sys.argv[1:] or SVD:
    image = demo_image(name)
    machine = start(name, image.path)
    if not machine.known:
        print(f"{name}: there is no {SVD[name]}.svd: names are those of the board's file")
    golden_file(name).write_text(log_of(machine), encoding="utf-8")
