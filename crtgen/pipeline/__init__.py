"""From a sensor's samples to events: features, a network and a decision as one model."""

from crtgen.pipeline.borders import Borders, count_borders, signals_of
from crtgen.pipeline.boxes import Box, Finder
from crtgen.pipeline.decider import Decider, Event
from crtgen.pipeline.decision import Decision, least_sum, runs_in
from crtgen.pipeline.description import PIPELINE, Description, read_description
from crtgen.pipeline.join import JoinedPipeline, join
from crtgen.pipeline.stream import events_of, read_samples, runs_of

__all__ = [
    "PIPELINE",
    "Borders",
    "Box",
    "Decider",
    "Decision",
    "Description",
    "Event",
    "Finder",
    "JoinedPipeline",
    "count_borders",
    "events_of",
    "join",
    "least_sum",
    "read_description",
    "read_samples",
    "runs_in",
    "runs_of",
    "signals_of",
]
