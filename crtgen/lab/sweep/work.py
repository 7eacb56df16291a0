"""A worker's part: runs a job with the sweep's crtgen and tools, on a board if it needs one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crtgen.base.errors import CrtgenError, UsageError
from crtgen.base.resources import code_digest
from crtgen.device.local_boards import LocalBoard, power_cycle
from crtgen.device.run import Site
from crtgen.lab.sweep.address import tool_version
from crtgen.lab.sweep.job import Job, Outcome, failure, run_job

__all__ = ["Task", "perform"]


@dataclass(frozen=True, slots=True)
class Task:
    """A job with its address, and what that was computed from: crtgen's ``code``, the versions of ``tools``.

    ``board`` names the real board that it needs; empty if any worker will do.
    """

    job: Job
    digest: str
    code: str
    tools: Mapping[str, str]
    board: str = ""


def perform(task: Task, contents: Mapping[str, bytes], unit: LocalBoard | None = None) -> Outcome:
    """Run a job, on the board ``unit`` if given; a board that does not answer is reset once."""
    try:
        _check_sameness(task)
    except CrtgenError as error:
        return failure(error)
    if unit is None:
        return run_job(task.job, contents)
    found = run_job(task.job, contents, Site(unit=unit))
    if not found.is_elsewhere_better or not unit.reset:
        return found
    try:
        power_cycle(unit)
    except CrtgenError as error:
        return replace(found, message=f"{found.message}; {error}", log=f"{found.log}\n{error.log}".strip())
    return run_job(task.job, contents, Site(unit=unit))


def _check_sameness(task: Task) -> None:
    # Figures of another crtgen, or of other tools, would be at the wrong address.
    pairs = [("crtgen", task.code, code_digest())]
    pairs += [(tool, version, tool_version(tool)) for tool, version in task.tools.items()]
    for what, wanted, found in pairs:
        if wanted != found:
            raise UsageError(
                f"the worker has another {what}: {found}, the sweep {wanted}",
                hint="install the same on all workers, and start them again",
            )
