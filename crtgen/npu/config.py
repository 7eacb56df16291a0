"""The configurations of Ethos-U that the model supports."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from crtgen.base.errors import UsageError

__all__ = ["CONFIGS", "Config", "config_of_word", "find_config"]

_STREAM_VERSION = 0


@dataclass(frozen=True, slots=True)
class Config:
    """An NPU configuration, as chosen at synthesis.

    ``macs`` are multiplications per cycle of all its cores, ``shram`` the KiB of internal memory of all of
    them. Weights are stored for micro-blocks of ``ofm_block`` output channels and ``ifm_block`` input
    channels.
    """

    name: str
    product: int
    macs: int
    shram: int
    ofm_block: int = 8
    ifm_block: int = 8
    cores: int = 1

    @property
    def word(self) -> int:
        log2 = self.macs.bit_length() - 1
        return self.product << 28 | self.shram << 8 | _STREAM_VERSION << 4 | log2


CONFIGS: Mapping[str, Config] = MappingProxyType(
    {
        config.name: config
        for config in (
            Config("ethos-u55-32", 0, 32, 16, ofm_block=4),
            Config("ethos-u55-64", 0, 64, 16),
            Config("ethos-u55-128", 0, 128, 24),
            Config("ethos-u55-256", 0, 256, 48),
            Config("ethos-u65-256", 1, 256, 48),
            Config("ethos-u65-512", 1, 512, 96, cores=2),
        )
    }
)


def find_config(name: str) -> Config:
    """Return a configuration by name; raises ``UsageError`` for an unknown one."""
    if name in CONFIGS:
        return CONFIGS[name]
    known = f"known: {', '.join(CONFIGS)}"
    if name.startswith("ethos-u85"):
        raise UsageError(
            f"{name} has other commands than U55 and U65, which crtgen does not know", hint=known
        )
    raise UsageError(f"{name} is not the name of an NPU", hint=known)


def config_of_word(word: int) -> Config:
    """Return the configuration whose CONFIG register is ``word``. Raises ``UsageError`` if none has it."""
    for config in CONFIGS.values():
        if config.word == word:
            return config
    raise UsageError(
        f"no NPU that crtgen knows has the configuration {word:#010x}",
        hint="docs/npu.md lists the configurations",
    )
