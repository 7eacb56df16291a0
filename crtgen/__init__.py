"""crtgen: static C runtimes for Cortex-M from trained networks."""

__version__ = "0.1.0"
