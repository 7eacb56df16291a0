"""A model of Arm's NPUs Ethos-U55 and U65: runs their command streams in numpy, to the last bit."""
