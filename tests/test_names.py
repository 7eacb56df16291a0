"""What names mean."""

import re
from collections import Counter
from pathlib import Path

CODE = Path(__file__).parents[1] / "crtgen"


def test_a_class_name_means_one_thing() -> None:
    names = Counter(
        n for path in CODE.rglob("*.py") for n in re.findall(r"^ *class (\w+)", path.read_text(), re.M)
    )
    assert names.total() > 900
    assert [name for name, times in names.items() if times > 1] == []
