"""ZIP archives with stored and deflated members, which are inflated only as far as the budget allows.

Members with other compression methods are refused: Python inflates bzip2 and LZMA without a bound, 4 KB to
hundreds of megabytes. A member cannot become longer than its header says, so the budget is first asked for
the sum of these lengths.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from crtgen.base import budget, files
from crtgen.base.formats.foreign import foreign

__all__ = ["ZipMembers", "opened_zip"]

# Bytes that Python's object of a member takes.
_PER_MEMBER = 1000


class ZipMembers:
    """The members of an open archive by name; directories are left out."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self._members = {each.filename: each for each in archive.infolist() if not each.is_dir()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the order of the archive. Never used as paths."""
        return tuple(self._members)

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def read(self, name: str) -> bytes:
        """Read a member, after asking the budget. Raises ``ValueError`` if no member has this name."""
        member = self._members.get(name)
        if member is None:
            raise ValueError(f"the archive has no {name}")
        _check(member)
        budget.current().take(member.file_size, name)
        with self._archive.open(member) as file:
            data = file.read(member.file_size)
        if len(data) != member.file_size:
            raise ValueError(f"{name} ends after {len(data)} of {member.file_size} bytes")
        return data


def _check(member: ZipInfo) -> None:
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is compressed in another way than by deflate")
    if member.flag_bits & 1:
        raise ValueError(f"{member.filename} is encrypted")


@contextmanager
def opened_zip(path: Path, what: str, hint: str = "", data: bytes | None = None) -> Iterator[ZipMembers]:
    """Open an archive within the block; ``data`` is the content of ``path`` if it was already read.

    Within the block, anything wrong with the file becomes a ``UsageError``.
    """
    with foreign(path, what, hint) as spent:
        content = files.read(path, what) if data is None else data
        spent.hold(_PER_MEMBER * content.count(b"PK\1\2"), "the list of members")
        with ZipFile(BytesIO(content)) as archive:
            yield ZipMembers(archive)
