"""``python -m tests.fuzz models --seconds 60 --seed 1``: findings go into a folder."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.compared import compare_mutants
from tests.fuzz.engine import Outcome, fuzz
from tests.fuzz.folders import fuzz_folders
from tests.fuzz.kills import kill_commands
from tests.fuzz.targets import TARGETS

_OTHERS: dict[str, Callable[..., Outcome]] = {
    "compared": compare_mutants,
    "kills": kill_commands,
    "folders": fuzz_folders,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, *_OTHERS])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inputs", type=int, default=0, help="so many, instead of so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"), help="where findings go")
    options = parser.parse_args()
    start = time.monotonic()
    limits = {"seed": options.seed, "inputs": options.inputs, "seconds": options.seconds}
    other = _OTHERS.get(options.target)
    outcome = other(**limits) if other else fuzz(TARGETS[options.target], **limits)
    for kind, (data, wrong) in outcome.found.items():
        options.keep.mkdir(parents=True, exist_ok=True)
        file = options.keep / f"{options.target}-{kind.partition(' ')[0]}"
        file.write_bytes(data)
        print(f"{file}: {kind}\n{wrong}")
    took = time.monotonic() - start
    print(
        f"{options.target}, seed {options.seed}: {outcome.inputs:,} inputs in {took:.0f} s, "
        f"{outcome.accepted:,} accepted, the slowest {outcome.slowest:.1f} s of the processor, "
        f"{len(outcome.found)} kinds of faults"
    )
    return 1 if outcome.found else 0


sys.exit(main())
