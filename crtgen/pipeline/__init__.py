"""From a sensor's samples to events: features, a network and a decision as one model."""

from crtgen.pipeline.decision import Decider, Decision, Event, least_sum, runs_in
from crtgen.pipeline.description import PIPELINE, Description, read_description
from crtgen.pipeline.join import Pipeline, join
from crtgen.pipeline.stream import events_of, read_samples, runs_of

__all__ = [
    "PIPELINE",
    "Decider",
    "Decision",
    "Description",
    "Event",
    "Pipeline",
    "events_of",
    "join",
    "least_sum",
    "read_description",
    "read_samples",
    "runs_in",
    "runs_of",
]
