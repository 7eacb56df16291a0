"""The linked image as bytes, and its instructions as text that two assemblers confirm."""
