"""Game files of either format, read and checked: it can be played, and it can be won."""

from pathlib import Path

from pivotune.core.errors import DataError
from pivotune.domains.household import engine
from pivotune.domains.household.game import FAMILY, Game, from_json
from pivotune.domains.household.official import read_official
from pivotune.domains.household.oracle import remaining_steps


def load_game(path: Path | str) -> Game:
    """The game of an official `game.tw-pddl`, or of a file in our own format.

    DataError names the file and the place: damaged, foreign, other rules, or a goal out of reach.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the game file: {error.strerror}", where=str(path)) from None
    ours = FAMILY.encode() in data
    game = from_json(data, str(path)) if ours else read_official(data, path)
    try:
        state, _ = engine.start(game)
    except DataError as error:  # the wording does not know which file it came from
        raise DataError(
            error.what, where=f"{path}: grammar", got=error.got, expected=error.expected
        ) from None
    if remaining_steps(state) is None:
        raise DataError(
            "the goal cannot be met",
            where=f"{path}: goal",
            got=str(game.goal),
            expected="enough things of the type that can be taken, treated and put as asked",
        )
    return game
