"""The exception for everything that the checker does not follow or finds wrong; catching it hides no other
error.
"""

__all__ = ["Refusal"]


class Refusal(Exception):
    """The end of a proof; its text gives the reason. It never means that the image is right."""
