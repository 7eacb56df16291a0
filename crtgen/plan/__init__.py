"""Memory planning: order, lifetimes, in-place, offsets in one static arena."""

from crtgen.plan.check import check_plan
from crtgen.plan.lifetime import Lifetime, lifetimes
from crtgen.plan.plan import Plan, Slot, Step
from crtgen.plan.planner import make_plan
from crtgen.plan.stream import stream_rows

__all__ = ["Lifetime", "Plan", "Slot", "Step", "check_plan", "lifetimes", "make_plan", "stream_rows"]
