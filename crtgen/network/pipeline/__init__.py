"""From a sensor's samples to events: features, a network and a decision as one model."""

from crtgen.network.pipeline.borders import Borders, count_borders, signals_of
from crtgen.network.pipeline.boxes import Box, Finder
from crtgen.network.pipeline.decider import Decider, Event
from crtgen.network.pipeline.decision import Decision, least_sum, runs_in
from crtgen.network.pipeline.description import PIPELINE, Description, read_description
from crtgen.network.pipeline.join import JoinedPipeline, join
from crtgen.network.pipeline.stream import events_of, read_samples, runs_of

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
