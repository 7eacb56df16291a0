"""``python -m crtgen`` is the program ``crtgen``."""

from crtgen.cli import main

main()
