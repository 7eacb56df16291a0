"""Write an image with pyOCD: ``python -m crtgen.device.flash.with_pyocd --target T image.elf``."""

import sys
from argparse import ArgumentParser

__all__ = ["main"]


def main() -> int:
    """Write the image, verify it with pyOCD's own check, and reset; return 0 on success."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--probe")
    parser.add_argument("image")
    arguments = parser.parse_args()
    try:
        from pyocd.core.helpers import ConnectHelper
        from pyocd.flash.file_programmer import FileProgrammer
    except ImportError:
        print("pyocd is not installed", file=sys.stderr)
        return 127
    probes = ConnectHelper.get_all_connected_probes(blocking=False, unique_id=arguments.probe)
    if len(probes) > 1:
        print(f"several probes: {', '.join(probe.unique_id for probe in probes)}", file=sys.stderr)
        return 1
    session = ConnectHelper.session_with_chosen_probe(
        blocking=False, unique_id=arguments.probe, target_override=arguments.target
    )
    if session is None:
        print("no probe", file=sys.stderr)
        return 1
    with session:
        FileProgrammer(session).program(arguments.image)
        session.target.reset()
    return 0


if __name__ == "__main__":
    sys.exit(main())
