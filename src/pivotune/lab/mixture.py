"""What the lab base model is taught, source by source, as a function of (config, step).

    household   games of the train split, played by a player that is unsure (`noisy_expert`)
    hints       turns of these games at which the action that a hint suggests is taken
    judging     short games with their outcome: the first mistake and a better action
    echoes      a row of words to be said again: teaches to look back, which all the rest needs
    skills      items of the eight out-of-domain skills

A mistake in a judged game is a turn after which the optimal remaining plan is longer. Half of
the hints suggest the best action, half any admissible one, so that only reading the hint helps.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from pivotune.core.protocols import OracleView
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Message, Task, ToolSpec, Trajectory
from pivotune.domains.household.actions import to_message
from pivotune.domains.household.environment import (
    EnvironmentConfig,
    HouseholdEnvironment,
    generated_task,
)
from pivotune.domains.household.generator import TINY_GAMES
from pivotune.domains.household.layouts import CAN_CONTAIN
from pivotune.domains.skills.copying import WORDS
from pivotune.domains.skills.judging import judging_answer, judging_question
from pivotune.domains.skills.suite import SKILLS, draw_item
from pivotune.lab.noisy_expert import Doubts, play_unsurely
from pivotune.lab.rendering import Hint, conversation_tree
from pivotune.lab.tokenizer import message_texts
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import TokenTree

SHOWN = EnvironmentConfig(dialect="act", step_limit=30)
FIRST_GAME = 1_000_000
"""Games of the mixture are numbered from here, so that studies can use the seeds below."""
_ECHO_WORDS = (
    *sorted({*CAN_CONTAIN} | frozenset().union(*CAN_CONTAIN.values())),
    *WORDS,
    *"abcdefghijklmnopqrstuvwxyz0123456789",
)
_SHORT = EnvironmentConfig(dialect="act", step_limit=12)
_PUT = "move {object} to {receptacle}"


class MixtureConfig(msgspec.Struct, frozen=True):
    """One training step's worth.

    games: household games, in tiny rooms. doubts: how unsure their player is. mistake_weight:
    weight of its mistakes in the loss before the step `unsure_from`; 1 afterwards. So the
    mechanics of the house are learnt from clean labels in all the states that mistakes lead to,
    and doubt only at the end: doubts from the start keep a small model from learning the rest.
    hints: hinted turns in each game. judge_every: steps from one judged game to the next. items:
    items of each skill, twice as many of the `hard` ones. echoes: rows of words.
    context_weight: weight of tokens that the assistant did not write (its own have 1).
    echo_steps: so many first steps hold `echo_batch` echoes and nothing else. Looking back is
    learnt suddenly, after 200 to 400 such steps; without it the rest is hardly learnt at all.
    """

    seed: int = 0
    games: int = 4
    doubts: Doubts = Doubts()
    mistake_weight: float = 0.25
    unsure_from: int = 3500
    hints: int = 1
    judge_every: int = 2
    items: int = 6
    hard: tuple[str, ...] = ("arithmetic", "copying")
    echoes: int = 2
    echo_steps: int = 700
    echo_batch: int = 64
    context_weight: float = 0.2


class Conversation(msgspec.Struct, frozen=True):
    """One training conversation and the source that it counts for."""

    source: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    hints: tuple[Hint, ...] = ()
    action_weights: tuple[float, ...] = ()


def draw_mixture(chat: ChatFormat, config: MixtureConfig, step: int) -> list[TokenTree]:
    """The trees of a step."""
    return [
        conversation_tree(
            chat,
            f"{each.source} {step}.{number}",
            each.messages,
            each.tools,
            hints=each.hints,
            context_weight=config.context_weight,
            action_weights=each.action_weights,
        )
        for number, each in enumerate(draw_conversations(config, step))
    ]


def mixture_texts(config: MixtureConfig, steps: int) -> Iterator[str]:
    """The texts of the first mixed steps, for training a tokenizer."""
    for step in range(config.echo_steps, config.echo_steps + steps):
        for each in draw_conversations(config, step):
            yield from message_texts(each.messages, each.tools)


def composition(chat: ChatFormat, config: MixtureConfig, steps: int = 20) -> dict[str, float]:
    """Token share of each source in the first mixed steps; hints are a source of their own."""
    tokens: dict[str, int] = defaultdict(int)
    for step in range(config.echo_steps, config.echo_steps + steps):
        for tree in draw_mixture(chat, config, step):
            trunk = len(tree.segments[0].ids)
            tokens[tree.id.split(" ")[0]] += trunk
            tokens["hints"] += tree.token_count - trunk
    return {source: round(count / sum(tokens.values()), 3) for source, count in tokens.items()}


def draw_conversations(config: MixtureConfig, step: int) -> Iterator[Conversation]:
    """The conversations of a step, household first."""
    rng = random.Random(derive_seed(config.seed, "mixture", step))
    if step < config.echo_steps:
        yield from (_echo(rng) for _ in range(config.echo_batch))
        return
    for number in range(config.games):
        task = generated_task(FIRST_GAME + step * config.games + number, "train", TINY_GAMES)
        yield _household(config, step, task, rng)
    if step % config.judge_every == 0:
        task = generated_task(FIRST_GAME + step, "train", TINY_GAMES)
        yield Conversation("judging", judging_messages(task, config.doubts, config.seed + 1))
    for _ in range(config.echoes):
        yield _echo(rng)
    for name in SKILLS:
        for _ in range(config.items * (2 if name in config.hard else 1)):
            item = draw_item(name, "train", rng)
            yield Conversation("skills", (*item.messages, item.answer), item.tools)


def _household(config: MixtureConfig, step: int, task: Task, rng: random.Random) -> Conversation:
    played = play_unsurely(task, config.doubts, SHOWN, config.seed)
    hints = draw_hints(played, config.hints, rng)
    weight = config.mistake_weight if step < config.unsure_from else 1.0
    weights = tuple(weight if each else 1.0 for each in played.meta["mistakes"])
    return Conversation("household", played.messages, played.tools, hints, weights)


def _echo(rng: random.Random) -> Conversation:
    words = " ".join(rng.choices(_ECHO_WORDS, k=rng.randint(6, 24)))
    return Conversation("echoes", (Message("user", f"echo: {words}"), Message("assistant", words)))


def draw_hints(played: Trajectory, count: int, rng: random.Random) -> tuple[Hint, ...]:
    """Hints at different turns of a played game."""
    positions = [i for i, each in enumerate(played.messages) if each.role == "assistant"]
    chosen = sorted(rng.sample(positions, min(count, len(positions))))
    if not chosen:
        return ()
    views = dict(zip(positions, _oracle_views(played, SHOWN), strict=False))
    return tuple(Hint(position, _hinted(views[position], rng)) for position in chosen)


def _hinted(view: OracleView, rng: random.Random) -> Message:
    if view.action is not None and rng.random() < 0.5:
        return view.action
    return to_message(rng.choice(view.admissible), SHOWN.dialect, _PUT)


def judging_messages(task: Task, doubts: Doubts, seed: int) -> tuple[Message, Message]:
    """A short game as a question to a judge, and the oracle's answer."""
    played = play_unsurely(task, doubts, _SHORT, seed)
    said = played.messages
    actions = [i for i, each in enumerate(said) if each.role == "assistant"]
    steps = [(said[i], said[i + 1].content) for i in actions]
    views = _oracle_views(played, _SHORT)
    mistake = next((t for t, pair in enumerate(itertools.pairwise(views)) if _worse(*pair)), None)
    errand = said[1].content.rpartition("Your task is to: ")[2]
    question = judging_question(errand, steps, solved=played.reward == 1.0)
    if mistake is None:
        return question, judging_answer(None, None)
    return question, judging_answer(mistake + 1, views[mistake].action)


def _worse(before: OracleView, after: OracleView) -> bool:
    """Whether the optimal remaining plan became longer, or impossible."""
    if before.remaining is None:
        return False
    return after.remaining is None or after.remaining > before.remaining


def _oracle_views(played: Trajectory, shown: EnvironmentConfig) -> list[OracleView]:
    """What the oracle sees before each action, and after the last."""
    environment = HouseholdEnvironment(shown)
    environment.reset(played.task)
    views = [environment.oracle()]
    for message in played.messages:
        if message.role == "assistant":
            environment.step(message)
            views.append(environment.oracle())
    return views
