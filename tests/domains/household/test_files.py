"""Game files: both formats, and every way in which they can be damaged or foreign."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from domains.household.games import official_games
from domains.household.test_engine import KITCHEN
from pivotune.core.errors import DataError
from pivotune.domains.household import engine
from pivotune.domains.household.export import write_official
from pivotune.domains.household.files import load_game
from pivotune.domains.household.game import Game, Goal, Thing, check, from_json, to_json
from pivotune.domains.household.grammar import MOVE, PUT, Grammar, read_grammar
from pivotune.domains.household.official import read_official
from pivotune.domains.household.pddl import read_expression


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return official_games(tmp_path_factory.mktemp("games"))


def changed(path: Path, target: Path, part: str, old: str, new: str, count: int = 1) -> Path:
    """A copy of an official file in which `part` has another text."""
    file = json.loads(path.read_text())
    text = re.sub(old, lambda match: new, file[part], count=count)
    assert text != file[part]
    target.write_text(json.dumps(file | {part: text}))
    return target


def test_all_official_games_load_and_can_be_won(official: list[Path]) -> None:
    assert len(official) == 156
    games = [load_game(path) for path in official]
    assert {game.grammar for game in games} == {"put"}
    assert len({game.task_type for game in games}) == 6
    for path, game in zip(official, games, strict=True):
        assert path.parent.parent.name.startswith(game.task_type)
        assert game.id == "/".join(path.parts[-3:-1])
        assert game.scene == f"FloorPlan{path.parent.parent.name.rsplit('-', 1)[1]}"


def test_our_format_keeps_everything(official: list[Path], tmp_path: Path) -> None:
    for path in official[::40]:
        game = load_game(path)
        assert from_json(to_json(game), "test") == game
        ours = tmp_path / "game.json"
        ours.write_bytes(to_json(game))
        assert load_game(ours) == game


def test_a_written_official_file_reads_back(official: list[Path], tmp_path: Path) -> None:
    file = json.loads(official[0].read_text())
    for path in official[::13]:
        game = load_game(path)
        grammar = re.sub(
            r"Your task is to: [^\"]*", "Your task is to: UNKNOWN GOAL.", file["grammar"]
        )
        target = tmp_path / path.parent.parent.name / path.parent.name / path.name
        target.parent.mkdir(parents=True)
        target.write_bytes(write_official(game, file["pddl_domain"], grammar))
        again = load_game(target)
        assert replace(again, cleaners=game.cleaners) == replace(
            game, things=again.things, receptacles=again.receptacles, fits=again.fits
        )
        assert engine.start(again)[1] == engine.start(game)[1]
        assert sorted(again.things, key=lambda t: t.id) == sorted(game.things, key=lambda t: t.id)
        used = {r.type for r in game.receptacles}
        assert {k: set(v) for k, v in again.fits.items() if k in used} == {
            k: set(v) for k, v in game.fits.items() if k in used
        }


def test_other_words_in_a_grammar_are_read(official: list[Path], tmp_path: Path) -> None:
    target = changed(
        official[0], tmp_path / "game.tw-pddl", "grammar", r"You open \{r.name\}", "Open: {r.name}"
    )
    game = load_game(target)
    assert isinstance(game.grammar, Grammar)
    state, _ = engine.start(game)
    name = next(r for r in state.world.receptacle_names if r.startswith("drawer"))
    state, _ = engine.step(state, f"go to {name}")
    assert engine.step(state, f"open {name}")[1].startswith(f"Open: {name}. In {name}, you see ")


DAMAGES = {
    "an unknown predicate": (
        "pddl_problem",
        r"\(pickupable ",
        "(edible ",
        "unknown predicate 'edible'",
    ),
    "a wrong number of arguments": ("pddl_problem", r"\(openable ", "(openable agent1 ", "takes 1"),
    "an undeclared object": (
        "pddl_problem",
        r"\(pickupable \S+\)",
        "(pickupable x)",
        "':objects|not among",
    ),
    "another kind of entity": (
        "pddl_problem",
        r"\(pickupable \S+\)",
        "(pickupable agent1)",
        "is said of",
    ),
    "a list that is not closed": (
        "pddl_problem",
        r"\(:goal",
        "((:goal",
        "not closed|no :goal|not a PDDL",
    ),
    "no goal": ("pddl_problem", r":goal", ":aim", "unknown section .:aim."),
    "an unknown goal": ("pddl_problem", r"\(isToggled \?ot\)", "(isOn ?ot)", "goal"),
    "another domain": ("pddl_problem", r"\(:domain alfred\)", "(:domain blocks)", "another domain"),
    "no start": ("pddl_problem", r"\(atLocation agent1 \S+\)", "", "one location"),
    "two starts": (
        "pddl_problem",
        r"\(:init",
        "(:init (atLocation agent1 loc_bar_9_bar_9_bar_9_bar_9)",
        "is said of",
    ),
    "other rules": ("pddl_domain", r"\(isHot \?o\)", "(isCool ?o)", "rules of action 'heatobject'"),
    "a missing rule": ("pddl_domain", r":action look", ":action gaze", "rules of action 'gaze'"),
    "rules of another game": (
        "pddl_domain",
        r"\(domain alfred\)",
        "(domain sokoban)",
        "not the rules",
    ),
    "a grammar without JSON": ("grammar", r'"intro"', "intro", "damaged grammar rules"),
    "a grammar without an action": ("grammar", r"action look ", "action gaze ", "no action 'look'"),
    "a grammar without a rule": ("grammar", r'"task"', '"tusk"', "no rule 'task'"),
    "a rule that needs itself": (
        "grammar",
        r"#look-variations#\. Next",
        "#look.feedback# Next",
        "leads back to itself",
    ),
    "an unknown condition": ("grammar", r"holdsany\(a:agent\)", "tired(a:agent)", "condition"),
    "a lost quote": ("grammar", r'template :: "look"', 'template :: look"', "damaged grammar"),
}


TYPED = "(objectType {0} mugType) (receptacleType {1} shelfType) (inReceptacle {0} {1})"
LAMP_GOAL = (
    "(exists (?t - object ?r - receptacle ?q - receptacle ?a - agent ?l - location) (and "
    "(objectType ?t deskLampType) (toggleable ?t) (isToggled ?t) (inReceptacle ?t {0}) "
    "(receptacleAtLocation ?r ?l) (atLocation ?a ?l))) "
    "(exists (?o - object ?a - agent) (and (objectType ?o mugType) (holds ?a {1})))"
)
ODD_GOALS = {
    "a second receptacle for the second thing": (
        f"(exists (?r - receptacle ?o - object ?p - object) (and {TYPED.format('?o', '?r')} "
        "(exists (?r - receptacle) (and (not (= ?o ?p)) "
        f"{TYPED.format('?p', '?r')}))))",
        "does not know",
    ),
    "two types of things": (
        f"(exists (?r - receptacle ?o - object ?p - object) (and {TYPED.format('?o', '?r')} "
        "(not (= ?o ?p)) (objectType ?p penType) (inReceptacle ?p ?r)))",
        "does not know",
    ),
    "the same thing twice": (
        f"(exists (?r - receptacle ?o - object ?p - object) (and {TYPED.format('?o', '?r')} "
        f"{TYPED.format('?p', '?r')}))",
        "does not know",
    ),
    "where the player ends": (
        "(exists (?r - receptacle ?o - object ?a - agent ?l - location) (and "
        f"{TYPED.format('?o', '?r')} (atLocation ?a ?l) (receptacleAtLocation ?r ?l)))",
        "does not know",
    ),
    "types of other things": (
        "(exists (?o - object) (objectType ?o mugType)) (exists (?o - object ?r - receptacle) "
        "(and (receptacleType ?r shelfType) (inReceptacle ?o ?r)))",
        "does not know",
    ),
    "a lamp elsewhere": (LAMP_GOAL.format("?q", "?o"), "does not know"),
    "nothing at all": ("", "does not know"),
    "either of two things": (
        f"(exists (?r - receptacle ?o - object) (or {TYPED.format('?o', '?r')}))",
        "the goal uses 'or'",
    ),
    "a name that nothing binds": (TYPED.format("?o", "?r"), "said of something else"),
    "an undeclared type": (
        "(exists (?r - receptacle ?o - object) (and (objectType ?o unicornType) "
        "(receptacleType ?r shelfType) (inReceptacle ?o ?r)))",
        "unicorntype, which is not declared",
    ),
    "an unknown predicate in the goal": (
        "(exists (?o - object) (edible ?o))",
        "unknown predicate 'edible' in the goal",
    ),
}


@pytest.mark.parametrize("odd", ODD_GOALS.values(), ids=list(ODD_GOALS))
def test_a_goal_that_is_not_quite_alfworlds_is_refused_not_played_wrongly(
    official: list[Path], tmp_path: Path, odd: tuple[str, str]
) -> None:
    goal, message = odd
    target = changed(
        official[0], tmp_path / "game.tw-pddl", "pddl_problem", r"\(:goal(?s:.*)", goal_part(goal)
    )
    with pytest.raises(DataError, match=message) as caught:
        load_game(target)
    assert re.search(r"game\.tw-pddl: pddl_problem, line \d+: ", str(caught.value))


def goal_part(goal: str) -> str:
    """The end of a problem: its goal, spread over lines."""
    return f"(:goal\n(and\n{goal}\n)\n)\n)\n"


def test_goals_spelt_otherwise_are_read_alike(official: list[Path], tmp_path: Path) -> None:
    """Other names, nesting and order of the same conditions."""
    one = f"(exists (?x - object) (exists (?y - receptacle) (and {TYPED.format('?x', '?y')})))"
    two = (
        "(exists (?r - receptacle) (and (exists (?b - object ?a - object) (and "
        f"{TYPED.format('?b', '?r')} {TYPED.format('?a', '?r')} (not (= ?b ?a))))))"
    )
    lamp = LAMP_GOAL.format("?r", "?o")
    wanted = {one: Goal("mug", "shelf"), two: Goal("mug", "shelf", count=2)}
    wanted[lamp] = Goal("mug", lamp_type="desklamp")
    for text, goal in wanted.items():
        target = changed(
            official[0],
            tmp_path / "game.tw-pddl",
            "pddl_problem",
            r"\(:goal(?s:.*)",
            goal_part(text),
        )
        assert read_official(target.read_bytes(), target).goal == goal


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_file_is_one_clear_error(
    official: list[Path], tmp_path: Path, damage: tuple[str, str, str, str]
) -> None:
    part, old, new, message = damage
    target = changed(official[0], tmp_path / "game.tw-pddl", part, old, new)
    with pytest.raises(DataError, match=message) as caught:
        load_game(target)
    assert str(target) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"pddl_domain": 3}',
        b'{"format":"x"}',
        b"null",
        b'{"x":' + b"[" * 99_999,
    ],
    ids=range(8),
)
def test_a_foreign_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="not an ALFWorld game file") as caught:
        load_game(path)
    assert str(path) in str(caught.value)
    with pytest.raises(DataError, match="cannot read"):
        load_game(tmp_path / "absent.tw-pddl")


def test_our_format_is_recognised_however_it_is_laid_out(tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    plain = json.loads(to_json(KITCHEN))
    path.write_text(json.dumps({"game": plain["game"], "format": plain["format"]}, indent=2))
    assert load_game(path) == KITCHEN
    wrong = {
        "unknown game format": plain | {"format": "pivotune-household-2"},
        "unknown field `openabel`": plain | {"game": plain["game"] | {"openabel": True}},
        "missing required field `goal`": plain
        | {"game": {k: v for k, v in plain["game"].items() if k != "goal"}},
        "Invalid enum value 'pick_a_fight'": plain
        | {"game": plain["game"] | {"task_type": "pick_a_fight"}},
    }
    for message, content in wrong.items():
        path.write_text(json.dumps(content))
        with pytest.raises(DataError, match=message) as caught:
            load_game(path)
        assert str(path) in str(caught.value)


def grown(rules: dict[str, str]) -> Grammar:
    """The newer grammar with more rules; the opening text uses the first."""
    more = {name: (("", text),) for name, text in rules.items()}
    more["intro"] = (("", f"#{next(iter(rules))}#"),)
    return Grammar(MOVE.rules | more, MOVE.commands)


ENDLESS = {
    "ten times longer at every rule": (
        {f"a{i}": f"#a{i + 1}#" * 10 for i in range(40)} | {"a40": "x"},
        "too many other rules",
    ),
    "a very long chain": (
        {f"a{i}": f"#a{i + 1}#" for i in range(3000)} | {"a3000": "x"},
        "too long a chain",
    ),
    "a name that nothing binds": ({"a": "You see {o.name}."}, "names 'o', which is nothing"),
}


@pytest.mark.parametrize("case", ENDLESS.values(), ids=list(ENDLESS))
def test_a_grammar_without_an_end_is_an_error_and_no_hang(
    tmp_path: Path, case: tuple[dict[str, str], str]
) -> None:
    rules, message = case
    path = tmp_path / "game.json"
    path.write_bytes(to_json(replace(KITCHEN, grammar=grown(rules))))
    with pytest.raises(DataError, match=message) as caught:
        load_game(path)
    assert f"{path}: grammar" in str(caught.value)


def test_every_truncation_of_a_file_is_an_error(official: list[Path], tmp_path: Path) -> None:
    content = official[0].read_bytes()
    path = tmp_path / "game.tw-pddl"
    for share in range(1, 20):
        path.write_bytes(content[: len(content) * share // 20])
        with pytest.raises(DataError):
            load_game(path)


@pytest.mark.parametrize("share", range(1, 12))
def test_every_truncation_of_a_problem_is_an_error(
    official: list[Path], tmp_path: Path, share: int
) -> None:
    file = json.loads(official[0].read_text())
    for part in ("pddl_domain", "pddl_problem", "grammar"):
        path = tmp_path / "game.tw-pddl"
        text = file[part]
        path.write_text(json.dumps(file | {part: text[: len(text) * share // 13]}))
        with pytest.raises(DataError) as caught:
            load_game(path)
        assert str(path) in str(caught.value)


def test_a_goal_that_cannot_be_met_is_refused(tmp_path: Path) -> None:
    impossible: list[Game] = [
        replace(KITCHEN, goal=Goal("pear", "table")),
        replace(KITCHEN, goal=Goal("apple", "sofa")),
        replace(KITCHEN, goal=Goal("apple", "table", conditions=("clean",))),
        replace(KITCHEN, goal=Goal("apple", "table", count=2)),
        replace(KITCHEN, goal=Goal("apple", lamp_type="lamp")),
        replace(KITCHEN, fits={}),
    ]
    for game in impossible:
        path = tmp_path / "game.json"
        path.write_bytes(to_json(game))
        with pytest.raises(DataError, match="goal cannot be met") as caught:
            load_game(path)
        assert str(path) in str(caught.value)


def test_parts_that_do_not_fit_are_refused() -> None:
    thing = KITCHEN.things[0]
    wrong = {
        "used twice": replace(KITCHEN, things=(thing, thing)),
        "cannot be numbered": replace(KITCHEN, start="nowhere"),
        "does not have": replace(KITCHEN, things=(replace(thing, inside=("sofa_bar_1",)),)),
        "either a receptacle": replace(KITCHEN, goal=Goal("apple")),
        "with this count": replace(KITCHEN, goal=Goal("apple", "table", count=3)),
        "hot and cool": replace(KITCHEN, goal=Goal("apple", "table", conditions=("hot", "cool"))),
        "two things with": replace(
            KITCHEN, goal=Goal("apple", "table", count=2, conditions=("hot",))
        ),
        "lamp can be picked up": replace(
            KITCHEN, things=(Thing("lamp_bar_1", "lamp"),), goal=Goal("apple", lamp_type="lamp")
        ),
        "not one word": replace(KITCHEN, fits={"side table": ("apple",)}),
    }
    for message, game in wrong.items():
        with pytest.raises(DataError, match=message):
            check(game, "here")


@pytest.mark.parametrize(
    ("text", "line"),
    [("(a (b)\n(c", 2), (")", 1), ("(a))", 1), ("(a)\nb", 2), ("", 1), ("(" * 200, 1)],
)
def test_a_damaged_expression_names_its_line(text: str, line: int) -> None:
    with pytest.raises(DataError, match=f"there, line {line}"):
        read_expression(text, "there")


def test_a_sentence_is_read_as_the_reference_engine_shows_it(official: list[Path]) -> None:
    grammar = json.loads(official[0].read_text())["grammar"]
    shown = {
        "put a; mug": "put a",
        'a \\"big\\" mug': "a big mug",
        "a <mug>": "a ",
        r"a \\n b": r"a \n b",
    }
    for written, expected in shown.items():
        text = re.sub(
            r"Your task is to: [^\"]*", lambda _, w=written: f"Your task is to: {w}", grammar
        )
        assert read_grammar(text, "there") == (PUT, expected)


def test_the_published_wordings_differ_only_in_words() -> None:
    assert PUT.commands["gotolocation"] == MOVE.commands["gotolocation"]
    assert set(MOVE.commands) - set(PUT.commands) == {"help"}
