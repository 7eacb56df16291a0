"""Memory planning: order, lifetimes, in-place, offsets in one static arena."""

from crtgen.plan.check import check_plan
from crtgen.plan.plan import Plan, Slot, Step
from crtgen.plan.planner import make_plan
from crtgen.plan.report import arena_map
from crtgen.plan.stream import stream_rows

__all__ = ["Plan", "Slot", "Step", "arena_map", "check_plan", "make_plan", "stream_rows"]
