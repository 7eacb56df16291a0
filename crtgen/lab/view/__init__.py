"""A local page on which to try models: a server on the loopback interface, whose answers are those of
commands.
"""

from crtgen.lab.view.jobs import Jobs
from crtgen.lab.view.server import ViewServer

__all__ = ["Jobs", "ViewServer"]
