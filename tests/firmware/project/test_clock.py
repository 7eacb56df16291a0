"""The clock of bare metal on SysTick: it starts at 0 and never goes back, also where the counter turns."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.firmware.project.building import toy_project
from tests.support import require_tool

MAIN = """
#include <stdio.h>
#include <inttypes.h>

int main(void)
{
    static const struct { uint32_t count, pending, interrupts; } steps[] = {
        {0, 0, 0}, {0xFFFFFF, 0, 0}, {0x800000, 0, 0}, {1, 0, 0},
        {0, ICSR_SYSTICK_PENDING, 0}, {0xFFFFFF, ICSR_SYSTICK_PENDING, 0}, {0xFFFFF0, 0, 1}, {0, 0, 1},
    };
    for (unsigned i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        SYST_CVR = steps[i].count;
        ICSR = steps[i].pending;
        for (uint32_t k = 0; k < steps[i].interrupts; k++)
            crt_clock_interrupt();
        printf("%" PRIu64 " ", crt_clock_ticks());
    }
    return 0;
}
"""


@pytest.mark.cc
def test_the_clock_starts_at_0_and_never_goes_back(tmp_path: Path) -> None:
    files = toy_project("mps2_an386", "standalone").files
    text = files["platform/clock_systick.c"].decode()
    text = re.sub(r"\(\*\(volatile uint32_t \*\)0x(\w+)u\)", r"register_\1", text)
    text = text[: text.index("void crt_clock_spin")].replace('__asm volatile("dsb");', "")
    registers = "".join(
        f"volatile uint32_t {name};\n" for name in sorted(set(re.findall(r"register_\w+", text)))
    )
    (tmp_path / "platform.h").write_text(files["platform/platform.h"].decode())
    (tmp_path / "clock.c").write_text(f"#include <stdint.h>\n{registers}{text}{MAIN}")
    program = tmp_path / "clock"
    subprocess.run(
        [require_tool("cc", "apt install gcc"), "-o", program, "clock.c"],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    shown = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout
    turn = 1 << 24
    expected = [0, 1, turn // 2, turn - 1, turn, turn + 1, turn + 16, 2 * turn]
    assert [int(word) for word in shown.split()] == expected
