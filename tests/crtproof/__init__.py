"""The second checker."""
