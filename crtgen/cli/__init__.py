"""The command line: one file per command, each parses, makes one API call and prints."""

from crtgen.cli.app import main

__all__ = ["main"]
