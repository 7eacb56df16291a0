"""The command line. Each command has a file: it parses, makes one API call and prints."""

from crtgen.cli.app import main

__all__ = ["main"]
