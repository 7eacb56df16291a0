"""The exception for everything that the checker does not follow or finds wrong, so that nothing else is
caught.
"""

__all__ = ["Refusal"]


class Refusal(Exception):
    """The end of a proof; the text says why. It is never a verdict that the image is right."""
