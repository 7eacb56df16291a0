"""One browser for all tests of pages."""

from collections.abc import Iterator

import pytest

from tests.lab.browser import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found
