"""The version of crtgen, where everything may import it from."""

__all__ = ["__version__"]

__version__ = "0.1.0"
