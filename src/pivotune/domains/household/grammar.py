"""The wording of a household game."""

import msgspec


class Grammar(msgspec.Struct, frozen=True):
    """Rules (name to alternatives of condition and text) and command templates of a game file."""

    rules: dict[str, tuple[tuple[str, str], ...]]
    commands: dict[str, str]
