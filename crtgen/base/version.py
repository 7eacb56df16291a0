"""The version of crtgen, in a module that any other may import."""

__all__ = ["__version__"]

__version__ = "0.1.0"
