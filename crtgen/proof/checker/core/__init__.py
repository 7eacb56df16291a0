"""A core that runs an image on symbolic words.

::

    machine       one instruction after the other, both ways of a branch
    instructions  what each does
    operands      their operands, as functions
    endless       loops that come back to the same state
    flow          where the ways of a branch meet
    memory        constants, the arena, variables, the stack
    layout        where these are
    registers     the core's own: FPU, MPU, limits of the stack
    division, long_product  libgcc's functions, which stand for one operation
    cycles        what an instruction takes at most
"""
