"""Seeds derived from names, so that no result depends on the order in which work is done."""

import hashlib


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed that depends on every part: `derive_seed(seed, "profile", turn.id, 3)`."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
