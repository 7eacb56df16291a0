"""Whether the generator still writes what it wrote."""

from crtgen.network.ops import all_cases
from tests.compiler.kernels.golden import digests, read


def test_kernels_are_what_they_were() -> None:
    now, before = digests(all_cases()), read()
    changed = sorted(set(now.items()) ^ set(before.items()))
    names = sorted({f"{design} on {cores}" for (design, cores), _ in changed})
    assert not names, (
        "; if that is meant, write the digests anew: python -m tests.compiler.kernels.golden\n"
        + "\n".join(names)
    )
