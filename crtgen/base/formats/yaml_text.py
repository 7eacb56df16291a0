"""YAML files that users write, such as hardware maps: plain values without aliases."""

from pathlib import Path
from typing import Any

from crtgen.base.formats.foreign import foreign

__all__ = ["parse_yaml"]


def parse_yaml(text: str, path: Path, what: str) -> Any:
    import yaml  # takes a tenth of the start of every command, and few have a map

    with foreign(path, what):
        if any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("the YAML has an alias, *name, which may stand for anything: write it out")
        return yaml.safe_load(text)
