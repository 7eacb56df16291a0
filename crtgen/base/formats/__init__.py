"""Formats that others defined: one door each.

Every reader of such a format is here, and nothing outside of this package calls the library that parses it
(``test_each_format_has_one_door``). A door answers for three things:

- it lists what it takes, and refuses the rest before a library guesses;
- it asks the budget for what the content will take, before the library takes it: pixels times channels,
  samples times channels, inflated bytes;
- whatever the library raises becomes an error of crtgen's that names the file.
"""
