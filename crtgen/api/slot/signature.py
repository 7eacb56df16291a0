"""Signatures of images: Ed25519 (RFC 8032), by the package ``cryptography``."""

from dataclasses import replace
from pathlib import Path

from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.base.files import read
from crtgen.compiler.codegen.slot_image import SlotImage

__all__ = ["sign"]


def sign(image: SlotImage, key: Path) -> SlotImage:
    """Sign an image with an Ed25519 key from a PEM file without a password.

    Firmware checks the signature with a library of its own (``crt_slot_place.verify``). Raises ``UsageError``
    for another kind of key.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ToolMissingError("signing needs cryptography", hint="pip install 'crtgen[sign]'") from error
    try:
        found = load_pem_private_key(read(key, "the key"), password=None)
    except (ValueError, TypeError) as error:
        raise UsageError(
            "the file is not a private key in PEM format without a password",
            where=str(key),
            hint="openssl genpkey -algorithm ed25519 -out key.pem makes one",
        ) from error
    if not isinstance(found, Ed25519PrivateKey):
        hint = "openssl genpkey -algorithm ed25519 makes one"
        raise UsageError("the key is not an Ed25519 key", where=str(key), hint=hint)
    return replace(image, signature=found.sign(image.image))
