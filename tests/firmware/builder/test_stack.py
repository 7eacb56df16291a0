"""The worst-case stack of small images whose frames are known."""

from pathlib import Path

import pytest

from crtgen.base.errors import UsageError
from crtgen.firmware.builder import StackReport, analyse_stack
from crtgen.firmware.builder.stack import read_frames
from tests.firmware.builder.projects import compile_image

pytestmark = pytest.mark.qemu

NOINLINE = "#define F __attribute__((noinline, noipa))\n"
CHAIN = (
    NOINLINE
    + """
F static int leaf(int x) { volatile char b[104]; b[x] = 1; return b[0]; }
F int middle(int x) { volatile char b[200]; b[x] = 1; return leaf(b[1]) + 1; }
F int tail(int x) { return middle(x + 1); }
void crt_reset(void) { for (;;) tail(1); }
"""
)


def analyse(elf: Path, **options: object) -> StackReport:
    report = analyse_stack(elf, elf.parent, root="crt_reset", **options)  # type: ignore[arg-type]
    assert report is not None
    return report


def names(report: StackReport) -> list[str]:
    return [frame.name for frame in report.path]


@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_a_chain_with_a_tail_call(tmp_path: Path, cpu: str) -> None:
    """leaf: 104. middle: 200 + lr, rounded to 208. tail: a branch without a frame on all but the M0+."""
    report = analyse(compile_image(tmp_path, cpu, main_c=CHAIN))
    own = {frame.name: frame.own for frame in report.path}
    assert names(report) == ["crt_reset", "tail", "middle", "leaf"]
    assert (own["leaf"], own["middle"]) == (104, 208)
    assert own["tail"] == (8 if cpu == "cortex-m0plus" else 0)
    assert report.worst == sum(own.values()) == report.path[0].total
    assert report.proven


def test_frames_are_the_same_without_the_compilers_figures(tmp_path: Path) -> None:
    """What is read from the code is what gcc says."""
    elf = compile_image(tmp_path, main_c=CHAIN)
    stated = analyse(elf)
    for path in tmp_path.glob("*.su"):
        path.unlink()
    scanned = analyse(elf)
    assert [(f.name, f.own) for f in scanned.path] == [(f.name, f.own) for f in stated.path]
    assert {f.kind for f in scanned.frames} == {"code"}


def test_a_place_may_have_a_tab_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.su").write_text("x\ty/main.c:3:5:run\t24\tstatic\n")
    assert read_frames(tmp_path) == {"run": (24, "static")}


def test_the_deeper_branch_counts(tmp_path: Path) -> None:
    source = (
        NOINLINE
        + """
        F int small(int x) { volatile char b[16]; b[x] = 1; return b[0]; }
        F int large(int x) { volatile char b[304]; b[x] = 1; return b[0]; }
        void crt_reset(void) { for (;;) { large(1); small(2); } }
        """
    )
    report = analyse(compile_image(tmp_path, main_c=source))
    assert names(report) == ["crt_reset", "large"]
    assert report.path[1].own == 304


def test_recursion_is_reported(tmp_path: Path) -> None:
    source = (
        NOINLINE
        + """
        int odd(int n);
        F int even(int n) { return n == 0 ? 1 : odd(n - 1) + 1; }
        F int odd(int n) { return n == 0 ? 0 : even(n - 1) + 1; }
        F int self(int n) { return n < 2 ? n : self(n - 1) + self(n - 2) + 1; }
        volatile int n;
        void crt_reset(void) { for (;;) { n = even(n) + self(n); } }
        """
    )
    report = analyse(compile_image(tmp_path, main_c=source))
    assert ("even", "odd") in report.recursion
    assert ("self",) in report.recursion
    assert not report.proven


POINTER = (
    NOINLINE
    + """
typedef int (*fn)(int);
F int entry_one(int x) { volatile char b[40]; b[x] = 1; return b[0]; }
F int entry_two(int x) { volatile char b[80]; b[x] = 1; return b[0]; }
fn volatile table[2] = {entry_one, entry_two};
F int dispatch(int i) { return table[i](i) + 1; }
void crt_reset(void) { for (;;) dispatch(1); }
"""
)


def test_a_call_through_a_pointer_needs_the_table(tmp_path: Path) -> None:
    elf = compile_image(tmp_path, main_c=POINTER)
    blind = analyse(elf)
    assert blind.unresolved == ("dispatch",)
    assert not blind.proven
    told = analyse(elf, indirect={"disp*": ("entry_*",)})
    assert names(told) == ["crt_reset", "dispatch", "entry_two"]
    assert told.path[2].own == 80
    assert told.proven


def test_assembly_declares_its_frame(tmp_path: Path) -> None:
    assembly = """
    .syntax unified
    .thumb
    .text
    .global kernel
    .type kernel, %function
    .equ crt_stack_of_kernel, 36
    kernel:
        push {r4-r11, lr}
        pop {r4-r11, pc}
    .size kernel, . - kernel
    """
    main = "void kernel(void); void crt_reset(void) { for (;;) kernel(); }"
    report = analyse(compile_image(tmp_path, main_c=main, kernel_S=assembly))
    assert [(f.name, f.own, f.kind) for f in report.path[1:]] == [("kernel", 36, "declared")]


def test_a_naked_function_is_read_from_its_code(tmp_path: Path) -> None:
    """gcc states 0 bytes for it; it pushes nine registers."""
    source = (
        NOINLINE
        + """
        __attribute__((naked, noinline)) void kernel(void)
        { __asm__ volatile("push {r4, r5, r6, r7, r8, r9, r10, r11, lr}\\n"
                           "pop {r4, r5, r6, r7, r8, r9, r10, r11, pc}"); }
        void crt_reset(void) { for (;;) kernel(); }
        """
    )
    report = analyse(compile_image(tmp_path, main_c=source))
    assert names(report) == ["crt_reset", "kernel"]
    assert (report.path[1].own, report.path[1].kind) == (36, "code")


def test_a_clone_has_the_frame_of_its_original(tmp_path: Path) -> None:
    assembly = """
    .syntax unified
    .thumb
    .text
    .global leaf.isra.0
    .type leaf.isra.0, %function
    leaf.isra.0:
        bx lr
    .size leaf.isra.0, . - leaf.isra.0
    """
    main = 'void clone(void) __asm__("leaf.isra.0"); void crt_reset(void) { for (;;) clone(); }'
    elf = compile_image(tmp_path, main_c=main, kernel_S=assembly)
    (tmp_path / "leaf.su").write_text("leaf.c:3:5:leaf\t24\tstatic\n")
    report = analyse(elf)
    assert [(f.name, f.own, f.kind) for f in report.path[1:]] == [("leaf.isra.0", 24, "static")]


def test_library_functions_are_read_from_their_code(tmp_path: Path) -> None:
    main = """
    volatile long long a, b;
    void crt_reset(void) { for (;;) a = a / b; }
    """
    report = analyse(compile_image(tmp_path, main_c=main))
    division = next(f for f in report.frames if f.name == "__aeabi_ldivmod")
    assert division.kind == "code"
    assert division.total >= 16


def test_alloca_is_not_proven(tmp_path: Path) -> None:
    source = (
        NOINLINE
        + """
        F void use(char *p) { *(volatile char *)p = 1; }
        F void grow(int n) { use(__builtin_alloca(n)); }
        volatile int n;
        void crt_reset(void) { for (;;) grow(n); }
        """
    )
    report = analyse(compile_image(tmp_path, main_c=source))
    assert report.unknown == ("grow",)
    assert not report.proven


def test_interrupts_are_on_top(tmp_path: Path) -> None:
    source = (
        NOINLINE
        + """
        extern char crt_stack_top[];
        void crt_reset(void) { for (;;) ; }
        void crt_fault(void) { volatile char b[1000]; b[0] = 1; }
        void tick(void) { volatile char b[64]; b[0] = 1; }
        void receive(void) { volatile char b[24]; b[0] = 1; }
        __attribute__((section(".vectors"), used)) void *const vectors[] = {
            crt_stack_top, crt_reset, crt_fault, tick, receive, tick};
        """
    )
    elf = compile_image(tmp_path, main_c=source)
    report = analyse(elf, faults=("crt_fault",), exception_frame=36)
    assert report.interrupt == 36 + 64
    assert report.worst == 100
    assert report.to_dict()["worst"] == 100


def test_an_image_without_the_root(tmp_path: Path) -> None:
    elf = compile_image(tmp_path, main_c=CHAIN)
    with pytest.raises(UsageError, match="no function nowhere"):
        analyse_stack(elf, tmp_path, root="nowhere")
