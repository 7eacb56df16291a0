"""A bit-exact model of Arm's NPUs Ethos-U55 and U65, which runs their command streams in numpy."""
