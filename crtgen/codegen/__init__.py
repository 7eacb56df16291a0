"""C code of a planned model, and the registry of what an image holds."""
