"""Readers of file formats that others define, one module each.

Nothing outside of this package calls the libraries that parse these formats
(``test_each_format_has_one_door``). Each reader

- lists what it accepts, and refuses the rest before a library guesses;
- asks the budget for the memory of the content before the library takes it: pixels times channels, samples
  times channels, inflated bytes;
- turns whatever the library raises into an error of crtgen's that names the file.
"""
