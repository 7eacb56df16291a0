"""Bits of Thumb instructions, by the Armv7-M and Armv8-M Architecture Reference Manuals.

A line of a table is the encoding, the name of the operation, and fields that it fixes. In an encoding a
letter is a bit of the field with that name, the first one the highest; bits of a field need not be
neighbours. A ``0`` or ``1`` has to be that bit. The first line that fits is the instruction; an encoding that
fits none is refused. Undefined and unpredictable encodings are refused by the lines, or by ``machine``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from crtproof.values import Refused

__all__ = ["TABLES", "Instruction", "decode"]

_SHORT = """
0000000000mmmddd  move     s=1 w=0
00000iiiiimmmddd  shift_i  s=1 t=0
00001iiiiimmmddd  shift_i  s=1 t=1
00010iiiiimmmddd  shift_i  s=1 t=2
0001100mmmnnnddd  data     s=1 o=8
0001101mmmnnnddd  data     s=1 o=13
0001110iiinnnddd  data_i   s=1 o=8
0001111iiinnnddd  data_i   s=1 o=13
00100dddiiiiiiii  data_i   s=1 o=2 n=15
00101nnniiiiiiii  data_i   s=1 o=13 d=15 c=1
00110dddiiiiiiii  data_i   s=1 o=8 b=1
00111dddiiiiiiii  data_i   s=1 o=13 b=1
0100000000mmmddd  data     s=1 o=0 b=1
0100000001mmmddd  data     s=1 o=4 b=1
0100000010mmmddd  shift_r  s=1 t=0 b=1
0100000011mmmddd  shift_r  s=1 t=1 b=1
0100000100mmmddd  shift_r  s=1 t=2 b=1
0100000101mmmddd  data     s=1 o=10 b=1
0100000110mmmddd  data     s=1 o=11 b=1
0100000111mmmddd  shift_r  s=1 t=3 b=1
0100001000mmmnnn  data     s=1 o=0 d=15 c=1
0100001001nnnddd  data_i   s=1 o=14 i=0
0100001010mmmnnn  data     s=1 o=13 d=15 c=1
0100001011mmmnnn  data     s=1 o=8 d=15 c=1
0100001100mmmddd  data     s=1 o=2 b=1
0100001101mmmddd  multiply s=1 b=1
0100001110mmmddd  data     s=1 o=1 b=1
0100001111mmmddd  data     s=1 o=3 n=15
01000100dmmmmddd  data     s=0 o=8 b=1
01000101nmmmmnnn  data     s=1 o=13 d=15 c=1
01000110dmmmmddd  move     s=0 w=0
010001110mmmm000  bx
010001111mmmm000  blx
01001tttiiiiiiii  load_pc  k=2 z=0 u=1 q=4
0101000mmmnnnttt  store_r  k=2 i=0
0101001mmmnnnttt  store_r  k=1 i=0
0101010mmmnnnttt  store_r  k=0 i=0
0101011mmmnnnttt  load_r   k=0 z=1 i=0
0101100mmmnnnttt  load_r   k=2 z=0 i=0
0101101mmmnnnttt  load_r   k=1 z=0 i=0
0101110mmmnnnttt  load_r   k=0 z=0 i=0
0101111mmmnnnttt  load_r   k=1 z=1 i=0
01100iiiiinnnttt  store    k=2 q=4
01101iiiiinnnttt  load     k=2 z=0 q=4
01110iiiiinnnttt  store    k=0 q=1
01111iiiiinnnttt  load     k=0 z=0 q=1
10000iiiiinnnttt  store    k=1 q=2
10001iiiiinnnttt  load     k=1 z=0 q=2
10010tttiiiiiiii  store    k=2 q=4 n=13
10011tttiiiiiiii  load     k=2 z=0 q=4 n=13
10100dddiiiiiiii  address  u=1 q=4
10101dddiiiiiiii  data_i   s=0 o=8 n=13 q=4
101100000iiiiiii  data_i   s=0 o=8 n=13 d=13 q=4
101100001iiiiiii  data_i   s=0 o=13 n=13 d=13 q=4
1011001000mmmddd  extend   k=1 z=1 r=0
1011001001mmmddd  extend   k=0 z=1 r=0
1011001010mmmddd  extend   k=1 z=0 r=0
1011001011mmmddd  extend   k=0 z=0 r=0
1011010lrrrrrrrr  push
1011110lrrrrrrrr  pop
1011x0i1iiiiinnn  compare_branch
10111111cccc0000  hint
10111111ccccpppp  it
11000nnnrrrrrrrr  store_m  w=1 u=1
11001nnnrrrrrrrr  load_m   u=1 w=2
1101cccciiiiiiii  branch_c
11100iiiiiiiiiii  branch
"""

_LONG = """
111010101100nnnn0iiiddddiib0mmmm  pack
1110101ooooSnnnn0iiiddddiittmmmm  data_s
111010100101nnnn10ooddddccccmmmm  select
11110i0ooooSnnnn0iiiddddiiiiiiii  data_m
11110i100000nnnn0iiiddddiiiiiiii  data_i s=0 o=8 g=1
11110i101010nnnn0iiiddddiiiiiiii  data_i s=0 o=13 g=1
11110i100100jjjj0iiiddddiiiiiiii  move_w
11110i101100jjjj0iiiddddiiiiiiii  move_t
1111001100T0nnnn0iiiddddii0wwwww  saturate z=1
1111001110T0nnnn0iiiddddii0wwwww  saturate z=0
111100110100nnnn0iiiddddii0wwwww  field z=1
111100111100nnnn0iiiddddii0wwwww  field z=0
111100110110nnnn0iiiddddii0wwwww  insert
11110011101011111000000000000000  hint c=0
11110siiiiiiiiii10a1biiiiiiiiiii  branch_w
11110siiiiiiiiii11a1biiiiiiiiiii  call
11110sccccjjjjjj10a0biiiiiiiiiii  branch_cw
1110100010w0nnnnrrrrrrrrrrrrrrrr  store_m u=1
1110100010w1nnnnrrrrrrrrrrrrrrrr  load_m u=1
1110100100w0nnnnrrrrrrrrrrrrrrrr  store_m u=0
1110100100w1nnnnrrrrrrrrrrrrrrrr  load_m u=0
1110100pu1w0nnnnttttvvvviiiiiiii  store_d
1110100pu1w1nnnnttttvvvviiiiiiii  load_d
11111000u0011111ttttiiiiiiiiiiii  load_pc k=0 z=0 q=1
11111000u0111111ttttiiiiiiiiiiii  load_pc k=1 z=0 q=1
11111000u1011111ttttiiiiiiiiiiii  load_pc k=2 z=0 q=1
11111001u0011111ttttiiiiiiiiiiii  load_pc k=0 z=1 q=1
11111001u0111111ttttiiiiiiiiiiii  load_pc k=1 z=1 q=1
111110001000nnnnttttiiiiiiiiiiii  store k=0 q=1
111110001010nnnnttttiiiiiiiiiiii  store k=1 q=1
111110001100nnnnttttiiiiiiiiiiii  store k=2 q=1
111110001001nnnnttttiiiiiiiiiiii  load k=0 z=0 q=1
111110001011nnnnttttiiiiiiiiiiii  load k=1 z=0 q=1
111110001101nnnnttttiiiiiiiiiiii  load k=2 z=0 q=1
111110011001nnnnttttiiiiiiiiiiii  load k=0 z=1 q=1
111110011011nnnnttttiiiiiiiiiiii  load k=1 z=1 q=1
111110000000nnnntttt000000iimmmm  store_r k=0
111110000010nnnntttt000000iimmmm  store_r k=1
111110000100nnnntttt000000iimmmm  store_r k=2
111110000001nnnntttt000000iimmmm  load_r k=0 z=0
111110000011nnnntttt000000iimmmm  load_r k=1 z=0
111110000101nnnntttt000000iimmmm  load_r k=2 z=0
111110010001nnnntttt000000iimmmm  load_r k=0 z=1
111110010011nnnntttt000000iimmmm  load_r k=1 z=1
111110000000nnnntttt1puwiiiiiiii  store k=0 q=1 x=1
111110000010nnnntttt1puwiiiiiiii  store k=1 q=1 x=1
111110000100nnnntttt1puwiiiiiiii  store k=2 q=1 x=1
111110000001nnnntttt1puwiiiiiiii  load k=0 z=0 q=1 x=1
111110000011nnnntttt1puwiiiiiiii  load k=1 z=0 q=1 x=1
111110000101nnnntttt1puwiiiiiiii  load k=2 z=0 q=1 x=1
111110010001nnnntttt1puwiiiiiiii  load k=0 z=1 q=1 x=1
111110010011nnnntttt1puwiiiiiiii  load k=1 z=1 q=1 x=1
11111010000s nnnn1111dddd0000mmmm  shift_r t=0
11111010001s nnnn1111dddd0000mmmm  shift_r t=1
11111010010s nnnn1111dddd0000mmmm  shift_r t=2
11111010011s nnnn1111dddd0000mmmm  shift_r t=3
1111101000001111 1111dddd10rrmmmm  extend k=1 z=1
1111101000011111 1111dddd10rrmmmm  extend k=1 z=0
1111101000101111 1111dddd10rrmmmm  extend16 z=1
1111101000111111 1111dddd10rrmmmm  extend16 z=0
1111101001001111 1111dddd10rrmmmm  extend k=0 z=1
1111101001011111 1111dddd10rrmmmm  extend k=0 z=0
111110100000nnnn 1111dddd10rrmmmm  extend_add k=1 z=1
111110100001nnnn 1111dddd10rrmmmm  extend_add k=1 z=0
111110100010nnnn 1111dddd10rrmmmm  extend16_add z=1
111110100011nnnn 1111dddd10rrmmmm  extend16_add z=0
111110100100nnnn 1111dddd10rrmmmm  extend_add k=0 z=1
111110100101nnnn 1111dddd10rrmmmm  extend_add k=0 z=0
111110101001nnnn 1111dddd0000mmmm  parallel o=8
111110101101nnnn 1111dddd0000mmmm  parallel o=13
111110101011nnnn 1111dddd1000mmmm  count_zeros
111110101100nnnn 1111dddd0000mmmm  difference8
111110101010nnnn 1111dddd1000mmmm  select8
111110110000nnnn 1111dddd0000mmmm  multiply s=0
111110110000nnnn aaaadddd0000mmmm  multiply_add f=1
111110110000nnnn aaaadddd0001mmmm  multiply_add f=-1
111110110001nnnn aaaadddd00NMmmmm  multiply_16
111110110010nnnn aaaadddd000Xmmmm  multiply_2 f=1
111110110011nnnn aaaadddd000Mmmmm  multiply_w
111110110100nnnn aaaadddd000Xmmmm  multiply_2 f=-1
111110110101nnnn aaaadddd000Rmmmm  multiply_hi
111110111000nnnn vvvvdddd0000mmmm  multiply_l z=1 a=0
111110111010nnnn vvvvdddd0000mmmm  multiply_l z=0 a=0
111110111100nnnn vvvvdddd0000mmmm  multiply_l z=1 a=1
111110111110nnnn vvvvdddd0000mmmm  multiply_l z=0 a=1
111110111001nnnn 1111dddd1111mmmm  divide z=1
111110111011nnnn 1111dddd1111mmmm  divide z=0
"""


@dataclass(frozen=True, slots=True)
class Instruction:
    address: int
    name: str
    fields: dict[str, int]
    following: int


@dataclass(frozen=True, slots=True)
class _Line:
    mask: int
    value: int
    places: dict[str, tuple[int, ...]]
    """Bits of each field, the highest first."""
    name: str
    fixed: dict[str, int]


def _lines(table: str) -> Iterator[_Line]:
    for text in table.split("\n"):
        match = re.match(r"((?:[01A-Za-z]+ ?)+?) +([a-z]\w+)((?: +\w=-?\d+)*)$", text)
        if match:
            bits = match[1].replace(" ", "")
            places: dict[str, tuple[int, ...]] = {}
            for i, letter in enumerate(reversed(bits)):
                if letter not in "01":
                    places[letter] = (i, *places.get(letter, ()))
            mask = int("".join("1" if b in "01" else "0" for b in bits), 2)
            value = int("".join(b if b in "01" else "0" for b in bits), 2)
            fixed = {part[0]: int(part[2:]) for part in match[3].split()}
            yield _Line(mask, value, places, match[2], fixed)


TABLES = {16: tuple(_lines(_SHORT)), 32: tuple(_lines(_LONG))}


def decode(address: int, first: int, second: int | None) -> Instruction:
    """Decode the instruction at an address from one or two halfwords. Raises ``Refused``."""
    size = 32 if first >> 11 in (0b11101, 0b11110, 0b11111) else 16
    if size == 32 and second is None:
        raise Refused("an instruction that ends behind the code")
    bits = first << 16 | (second or 0) if size == 32 else first
    for line in TABLES[size]:
        if bits & line.mask == line.value:
            fields = dict(line.fixed)
            for name, places in line.places.items():
                number = 0
                for place in places:
                    number = number << 1 | bits >> place & 1
                fields[name] = number
            return Instruction(address, line.name, fields, address + size // 8)
    raise Refused(f"the encoding {bits:#x} at {address:#x} is not followed")
