"""``python -m crtproof CERTIFICATE MODEL IMAGE``: check an image that `crtgen prove` has checked."""

import sys
import time
from pathlib import Path

from crtproof.check import check
from crtproof.values import Refused


def main(arguments: list[str]) -> int:
    """Print what is accepted, layer by layer.

    Returns 0 if every output is, 3 if all but those of layers that are not followed are, 1 if not, and 2 for
    wrong files.
    """
    if len(arguments) != 3:
        print("usage: python -m crtproof CERTIFICATE MODEL.tflite IMAGE.elf", file=sys.stderr)
        return 2
    start = time.process_time()
    sys.setrecursionlimit(20000)
    try:
        result = check(*(Path(a) for a in arguments))
    except (Refused, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for number, name, accepted, outputs in result.layers:
        print(f"{number:3}  {name:18} {accepted:>8,} of {outputs:>8,}")
    print(f"{result.instructions:,} instructions, {result.stack:,} bytes of stack, "
          f"{result.intervals:,} intervals, {time.process_time() - start:.1f} s")  # fmt: skip
    if result.is_accepted:
        print(f"{result.model}: accepted, {result.accepted:,} of {result.outputs:,} outputs")
        return 0
    if result.is_accepted_but_for:
        print(f"{result.model}: accepted up to layer {result.left[0]}, which is not followed")
        return 3
    print(f"{result.model}: not accepted: {result.refused or result.missing}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
