from functools import lru_cache

import msgspec
import numpy as np
import pytest
import torch

from pivotune.core.errors import RecipeError
from pivotune.core.protocols import SamplerAbilities, TokenScores
from pivotune.core.types import Message
from pivotune.models.scripted import ScriptedSampler
from pivotune.models.trees import Segment, TokenTree, context_signal, path_ids
from pivotune.train.episodes import Rollouts, all_rows, row_trees
from pivotune.train.losses import FlatTokens, LossConfig, micro_batch_loss
from pivotune.train.objectives.episode_grpo import EpisodeGrpo, EpisodeGrpoConfig
from pivotune.train.objectives.pivot_opd import PivotOpd, PivotOpdConfig
from pivotune.train.pivotal import assert_no_hint, unsaid
from pivotune.train.teachers import TeacherConfig
from pivotune.turns.hints import ACTION_HINT, leaks, with_action_hint
from pivotune.turns.mistakes import OracleTeacher
from pivotune.turns.recovery import RecoveryConfig, sample_recoveries
from pivotune.turns.rollout import contexts
from pivotune.turns.sampling import PtgsConfig
from train.playground import SMALL, ByteGame, materials, same_trees, untrained

OFF = {"w_prev": 0.0, "w_traj": 0.0, "w_rec": 0.0}
GOLD = Message("assistant", "b")


def pivot_opd(given=None, **more):
    return PivotOpd(given or materials(), PivotOpdConfig(**{**SMALL, **OFF, **more}))


@lru_cache
def groups():
    return Rollouts(materials(), EpisodeGrpoConfig(**SMALL), "x").play(0)


def logprobs(messages, token_ids):
    """(T,) by a plain forward pass."""
    policy = untrained()
    prompt = policy.chat.render(messages, ())
    ids = torch.tensor([[*prompt, *token_ids]])
    with torch.no_grad():
        rows = policy.model(ids).logits[0].log_softmax(-1)
    return np.array([float(rows[len(prompt) + i - 1, token]) for i, token in enumerate(token_ids)])


def marks_by_hand(episode):
    """Turns whose action does not begin with an even character: there the way gets longer."""
    return [t for t, turn in enumerate(episode.turns) if turn.replies[0].content == "odd"]


class Never:
    """A sampler that may not be asked."""

    def __getattr__(self, name):
        raise AssertionError(f"the teacher was asked: {name}")


def test_without_weights_it_is_grpo_bit_for_bit_and_no_teacher_is_asked():
    given = materials(teacher=Never())
    plain = EpisodeGrpo(given, EpisodeGrpoConfig(**SMALL)).collect(0)
    for more in ({}, {"variant": "external"}, {"teacher": TeacherConfig("model")}):
        collected = pivot_opd(given, **more).collect(0)
        assert same_trees(collected.trees, plain.trees)
        assert collected.cost == plain.cost
        assert collected.phases == {}


def test_the_preventive_term_is_the_log_ratio_of_hinted_to_plain():
    shaped = pivot_opd(w_prev=0.1).shape(groups(), 0)
    rows = {row.name: row for row in shaped.rows}
    checked = 0
    for base in all_rows(groups()):
        marks = marks_by_hand(base.episode)
        live = base.group.advantages.live
        if not live and not marks:
            assert base.name not in rows
            continue
        row = rows[base.name]
        states = contexts(base.episode)
        for turn, signal in enumerate(row.signals):
            said = base.episode.turns[turn].completion.token_ids
            expected = np.full(len(said), base.advantage)
            if turn in marks:
                hinted = with_action_hint(states[turn], GOLD)
                expected += 0.1 * (logprobs(hinted, said) - logprobs(states[turn], said))
                checked += 1
            np.testing.assert_allclose(signal.advantages, expected, atol=2e-5)
            trained = live or turn in marks
            assert signal.weights.tolist() == [float(trained)] * len(said)
    assert checked == shaped.metrics["marks"] > 3
    assert set(shaped.phases) == {"detect", "distil"}
    assert shaped.phases["detect"].environment_steps > 0
    assert shaped.phases["distil"].prompt_tokens > 0


def test_with_ptgs_terms_are_at_the_reference_temperature_and_rows_at_their_own():
    objective = pivot_opd(w_prev=1.0, ptgs=PtgsConfig(tau=1.5))
    played = objective.rollouts.play(0)
    assert len({group.temperature for group in played}) == len(played)
    shaped = objective.shape(played, 0)
    row, turn = next(
        (row, turn)
        for row in shaped.rows
        for turn in marks_by_hand(row.episode)
        if row.group.temperature != 1.0
    )
    state, said = contexts(row.episode)[turn], row.episode.turns[turn].completion
    gap = logprobs(with_action_hint(state, GOLD), said.token_ids)
    gap -= logprobs(state, said.token_ids)
    found = row.signals[turn].advantages
    np.testing.assert_allclose(found, row.advantage + gap, atol=3e-5)
    (tree,) = [tree for tree in row_trees([row], "turn") if f"turn {turn}" in tree.id][:1]
    temperatures = {s.signal.temperature for s in tree.segments if s.signal.live.any()}
    assert temperatures == {row.group.temperature}


def test_the_lesson_reaches_every_turn():
    answer = '{"turns": [], "lesson": "Even is good."}'
    teacher = ScriptedSampler(lambda messages, tools, row: answer)
    asked = TeacherConfig("model", question="json")
    shaped = pivot_opd(
        materials(teacher=teacher), w_traj=0.5, teacher=asked, lesson_hint="{lesson}"
    ).shape(groups(), 0)
    rows = all_rows(groups())
    assert len(shaped.rows) == len(rows)
    assert shaped.phases["detect"].judge_calls == len(rows)
    row = shaped.rows[1]
    state, said = contexts(row.episode)[1], row.episode.turns[1].completion.token_ids
    hinted = (*state, Message("user", "Even is good."))
    gap = logprobs(hinted, said) - logprobs(state, said)
    np.testing.assert_allclose(row.signals[1].advantages, row.advantage + 0.5 * gap, atol=2e-5)


def test_a_models_marks_are_compared_with_the_oracles_before_training():
    answer = '{"turns": [{"turn": 1, "action": "b"}, {"turn": 9, "action": "b"}]}'
    teacher = ScriptedSampler(lambda messages, tools, row: answer)
    asked = TeacherConfig("model", question="json")
    objective = pivot_opd(materials(teacher=teacher), w_prev=0.1, teacher=asked)
    metrics = objective.shape(groups(), 0).metrics
    marks = [marks_by_hand(row.episode) for row in all_rows(groups())]
    first = [0 in each for each in marks]
    # Where the first action is even it is not the gold one either: another even character.
    named = len(marks)
    assert metrics["teacher_precision"] == pytest.approx(sum(first) / named)
    assert metrics["teacher_recall"] == pytest.approx(sum(first) / sum(map(len, marks)))
    assert metrics["teacher: turn out of range"] == named
    assert "teacher_precision" not in objective.shape(groups(), 1).metrics


def test_random_turns_are_as_many_as_detected_ones_with_the_teachers_action():
    objective = pivot_opd(w_prev=0.1, turns="random")
    shaped = objective.shape(groups(), 0)
    rows = all_rows(groups())
    found = {
        (row.name, turn)
        for row in shaped.rows
        for turn, signal in enumerate(row.signals)
        if np.abs(signal.advantages - np.float32(row.advantage)).max() > 1e-6
    }
    detected = {(row.name, turn) for row in rows for turn in marks_by_hand(row.episode)}
    assert shaped.metrics["marks"] == len(detected)
    for row in rows:
        mine = [turn for name, turn in found if name == row.name]
        assert len(mine) == len(marks_by_hand(row.episode))
    assert found != detected
    row, turn = next(
        (r, t) for r in shaped.rows for name, t in sorted(found - detected) if r.name == name
    )
    state, said = contexts(row.episode)[turn], row.episode.turns[turn].completion.token_ids
    gap = logprobs(with_action_hint(state, GOLD), said) - logprobs(state, said)
    np.testing.assert_allclose(row.signals[turn].advantages, row.advantage + 0.1 * gap, atol=2e-5)
    again = pivot_opd(w_prev=0.1, turns="random").shape(groups(), 0)
    assert same_trees(row_trees(again.rows, "episode"), row_trees(shaped.rows, "episode"))


def test_an_empty_hint_teaches_nothing():
    objective = pivot_opd(w_prev=1.0, w_rec=1.0, recovery_turns=1, hint="")
    shaped = objective.shape(groups(), 0)
    for row in shaped.rows:
        for signal in row.signals:
            np.testing.assert_allclose(signal.advantages, row.advantage, atol=1e-5)
    assert len(shaped.more) > 0
    for tree in shaped.more:
        np.testing.assert_allclose(tree.segments[1].signal.advantages, 0.0, atol=1e-5)


@pytest.mark.parametrize("delta", [5.0, 0.05])
def test_recoveries_are_clipped_log_ratios_on_the_plain_context(delta):
    shaped = pivot_opd(w_rec=0.5, recovery_turns=1, delta=delta).shape(groups(), 0)
    assert len(shaped.more) == shaped.metrics["recoveries"] > 0
    plain = {
        tuple(untrained().chat.render(state, ())): state
        for row in all_rows(groups())
        for state in contexts(row.episode)
    }
    for tree in shaped.more[:4]:
        prompt, branch = tree.segments
        state = plain[tuple(prompt.ids.tolist())]  # no hint in it
        said = branch.ids.tolist()
        own, told = logprobs(state, said), logprobs(with_action_hint(state, GOLD), said)
        np.testing.assert_allclose(branch.signal.behaviour, own, atol=2e-5)
        expected = 0.5 * np.clip(told - own, -delta, delta)
        np.testing.assert_allclose(branch.signal.advantages, expected, atol=2e-5)
    phase = shaped.phases["recover"]
    assert phase.rollout_turns >= len(shaped.more)
    assert phase.environment_steps > 0


def test_cross_entropy_recovery_is_likelihood_only():
    objective = pivot_opd(w_rec=0.25, recovery_turns=1, recovery_loss="cross_entropy")
    for tree in objective.shape(groups(), 0).more:
        signal = tree.segments[1].signal
        assert signal.ce_weights.tolist() == [0.25] * len(tree.segments[1].ids)
        assert not signal.pg_weights.any()


def test_recoveries_share_their_episodes_trunk():
    collected = pivot_opd(w_rec=1.0, w_prev=0.1, recovery_turns=1).collect(0)
    shared = [tree for tree in collected.trees if len(tree.segments) > 1]
    assert any("recovery" in tree.id and "+" in tree.id for tree in shared)
    for tree in collected.trees:
        rows = [s.signal.row for s in tree.segments if s.signal.live.any()]
        assert len(rows) == len(set(rows))


def test_a_caps_worth_of_recoveries():
    shaped = pivot_opd(w_rec=1.0, recovery_turns=2, recovery_limit=3).shape(groups(), 0)
    assert 0 < len(shaped.more) <= 3
    assert shaped.metrics["recovery: over the limit"] > 0


def test_the_external_teacher_scores_one_failed_action_a_group():
    other = ScoresConstant(-1.5)
    shaped = pivot_opd(materials(teacher=other), variant="external", w_prev=0.1).shape(groups(), 0)
    failed = [g for g in groups() if any((e.reward or 0) < 0.5 for e in g.episodes)]
    touched = 0
    for row in shaped.rows:
        for turn, signal in enumerate(row.signals):
            said = row.episode.turns[turn].completion
            term = signal.advantages - np.float32(row.advantage)
            if np.abs(term).max() > 1e-6:
                touched += 1
                np.testing.assert_allclose(term, 0.1 * (-1.5 - np.array(said.logprobs)), atol=1e-5)
    assert touched == shaped.metrics["marks"] <= len(failed)
    assert touched > 0


class ScoresConstant:
    """A teacher with one log-probability for everything."""

    name, context_limit = "constant", 10_000
    abilities = SamplerAbilities(scores=True, loads_weights=False, token_ids=True)

    def __init__(self, value):
        self.value = value

    def count(self, messages, tools):
        return 1

    def score(self, requests):
        return [TokenScores((self.value,) * len(each.token_ids)) for each in requests]


def test_a_prompt_with_a_hint_is_a_bug():
    chat = untrained().chat
    for messages, wrong in (((Message("user", "x"),), False), (with_action_hint((), GOLD), True)):
        ids = np.array(chat.render(messages, ()), np.int64)
        tree = TokenTree("t", (Segment(ids, context_signal(len(ids))),))
        if wrong:
            with pytest.raises(AssertionError, match="carries a hint"):
                assert_no_hint(chat, [tree], ["Decide in your own way"])
        else:
            assert_no_hint(chat, [tree], ["Decide in your own way"])


def test_who_says_a_passage_by_himself_is_no_bug():
    played = groups()
    said = played[0].episodes[0].turns[0].completion.text
    passages = ["Decide in your own way", said]
    assert unsaid(passages, played) == passages[:1]
    assert unsaid(["even"], played) == []  # the game's own word
    every = {turn.replies[0].content for each in played[0].episodes for turn in each.turns}
    hint = f"{{action}} {min(every)} of twelve letters"
    # The template's words stand in no episode, so they are still searched for.
    pivot_opd(w_prev=0.1, hint=hint).collect(0)


def completion_of(text):
    return (
        groups()[0]
        .episodes[0]
        .turns[0]
        .completion.__class__(
            (), (1,), (0.0,), Message("assistant", text), "ok", "stop", 1.0, "p", text
        )
    )


def test_responses_that_give_the_hint_away():
    assert leaks(completion_of("As the hint says: b"), GOLD)
    assert leaks(completion_of("a reasonable action here is b"), GOLD)
    assert not leaks(completion_of("b"), GOLD)
    named = Message("assistant", "read hint.txt")
    assert not leaks(completion_of("read hint.txt"), named)
    assert leaks(completion_of("read hint.txt, says the hint"), named)


RECOVERY = RecoveryConfig(2, 64, 1.0, 8, ACTION_HINT)


def recoveries(script, make=ByteGame, **more):
    """Recoveries of the first episode with a mistake that is not its last turn."""
    episode, turn = next(
        (row.episode, marks_by_hand(row.episode)[0])
        for row in all_rows(groups())
        if 0 in marks_by_hand(row.episode)
    )
    config = msgspec.structs.replace(RECOVERY, **more)
    found = sample_recoveries(
        ScriptedSampler(script),
        OracleTeacher(lambda task: make()),
        lambda task: make(),
        [("e", episode, turn)],
        config,
        seed=0,
    )
    return found, contexts(episode)[turn + 1]


def test_a_second_recovery_goes_on_in_a_replayed_copy():
    found, start = recoveries(lambda messages, tools, row: "bb")
    first, second = found.items
    assert first.history == start
    assert second.history == (*start, Message("assistant", "bb"), Message("user", "even"))
    assert found.ended == {}
    (single,) = recoveries(lambda messages, tools, row: "bb", turns=1)[0].items
    assert single == first


class Forgetful(ByteGame):
    """Answers something new every time."""

    count = 0

    def step(self, action):
        Forgetful.count += 1
        result = super().step(action)
        reply = Message("user", f"{result.replies[0].content} {Forgetful.count}")
        return msgspec.structs.replace(result, replies=(reply,))


class Breaks(ByteGame):
    """Breaks in a way that no one foresaw: after so many steps of all its copies."""

    left = 0

    def step(self, action):
        Breaks.left -= 1
        if Breaks.left < 0:
            raise KeyError("out of order")
        return super().step(action)


def test_an_environment_that_breaks_ends_the_chain_and_is_counted():
    Breaks.left = 0
    found, _ = recoveries(lambda messages, tools, row: "bb", make=Breaks)
    assert (found.items, found.ended) == ((), {"the replay differs": 1})
    Breaks.left = 1
    found, _ = recoveries(lambda messages, tools, row: "bb", make=Breaks)
    assert (len(found.items), found.ended) == (1, {"the environment failed": 1})
    Breaks.left = 0
    episode = all_rows(groups())[0].episode
    marks = OracleTeacher(lambda task: Breaks()).detect([episode], limit=5, seed=0)
    assert marks.problems == {"the replay differs": 1}


def test_chains_end_where_they_must_and_say_why():
    found, _ = recoveries(lambda messages, tools, row: "bb", make=Forgetful)
    assert (found.items, found.ended) == ((), {"the replay differs": 1})
    found, _ = recoveries(lambda messages, tools, row: "the hint says b")
    assert (found.items, found.ended) == ((), {"the hint is given away": 1})
    found, _ = recoveries(lambda messages, tools, row: " ".join("abcdefghijk"))
    assert (found.items, found.ended) == ((), {"no action committed": 1})


def test_settings_without_a_meaning_are_refused():
    for bad in ({"w_rec": -1.0}, {"delta": 0.0}, {"hint": "no slot"}, {"lesson_hint": "{a}"}):
        with pytest.raises(RecipeError):
            pivot_opd(**bad)
    with pytest.raises(RecipeError, match="nothing to imitate"):
        pivot_opd(variant="external", prevention_loss="cross_entropy")
    with pytest.raises(RecipeError, match="what was wasted"):
        pivot_opd(w_prev=0.1, teacher=TeacherConfig("self", waste=True))
    with pytest.raises(RecipeError, match="needs a teacher"):
        pivot_opd(w_prev=0.1, teacher=TeacherConfig("model"))
    with pytest.raises(RecipeError, match="unknown form of question"):
        pivot_opd(w_prev=0.1, teacher=TeacherConfig("self", question="riddle"))


def gradient(student, weights, advantages, likelihood):
    """Gradient of the trainer's own loss over all three tokens, each weighted as given."""
    logits = torch.tensor(student, dtype=torch.float64).log().requires_grad_()
    logp = logits.log_softmax(-1)
    tokens = FlatTokens(
        pg_weights=torch.tensor(weights),
        ce_weights=torch.tensor(likelihood),
        advantages=torch.tensor(advantages),
        sampled=torch.full((3,), float("nan"), dtype=torch.float64),
        rows=torch.arange(3),
    )
    loss, _ = micro_batch_loss(logp, tokens, LossConfig())
    loss.backward()
    return logits.grad.numpy()


def kl_gradient(student, kl):
    logits = torch.tensor(student, dtype=torch.float64).log().requires_grad_()
    kl(logits.log_softmax(-1)).backward()
    return logits.grad.numpy()


def test_forward_and_reverse_divergences_are_not_swapped():
    student, teacher = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    logt = torch.tensor(teacher).log()
    gap = np.log(teacher) - np.log(student)
    # Preventive: tokens come from the student, A = log teacher - log student.
    prevented = gradient(student, student, gap, np.zeros(3))
    reverse = kl_gradient(student, lambda logp: (logp.exp() * (logp - logt)).sum())
    np.testing.assert_allclose(prevented, reverse, atol=1e-12)
    # Recovery as cross-entropy: tokens come from the teacher.
    recovered = gradient(student, np.zeros(3), np.zeros(3), teacher)
    forward = kl_gradient(student, lambda logp: (logt.exp() * (logt - logp)).sum())
    np.testing.assert_allclose(recovered, forward, atol=1e-12)
    # Recovery as published: half the mean squared log-ratio under the teacher.
    surrogate = gradient(student, teacher, gap, np.zeros(3))
    squared = kl_gradient(student, lambda logp: (logt.exp() * (logt - logp) ** 2).sum() / 2)
    np.testing.assert_allclose(surrogate, squared, atol=1e-12)
    assert np.abs(forward - reverse).max() > 0.05 < np.abs(squared - forward).max()


def test_paths_of_recoveries_begin_with_their_context():
    for tree in pivot_opd(w_rec=1.0, recovery_turns=1).shape(groups(), 0).more[:2]:
        ids = path_ids(tree, 1)
        assert ids[: len(tree.segments[0].ids)].tolist() == tree.segments[0].ids.tolist()


def test_prevention_by_cross_entropy_trains_what_the_hinted_student_says_instead():
    objective = pivot_opd(w_prev=0.5, prevention_loss="cross_entropy")
    shaped = objective.shape(groups(), 0)
    marks = [
        contexts(row.episode)[turn]
        for row in all_rows(groups())
        for turn in marks_by_hand(row.episode)
    ]
    said = len(shaped.more) + shaped.metrics.get("correction: no action committed", 0)
    assert said == shaped.metrics["marks"] == len(marks)
    assert len(shaped.more) == shaped.metrics["corrections"] > 0
    chat = untrained().chat
    plain = {tuple(chat.render(state, ())) for state in marks}
    for tree in shaped.more:
        prompt, branch = tree.segments
        assert tuple(prompt.ids.tolist()) in plain
        assert set(branch.signal.ce_weights.tolist()) == {0.5}
        assert not branch.signal.pg_weights.any()
    # Nothing is taken from the recorded responses: live rows are GRPO's, dead ones left out.
    plain_rows = pivot_opd().shape(groups(), 0).rows
    assert same_trees(row_trees(shaped.rows, "episode"), row_trees(plain_rows, "episode"))
    assert set(shaped.phases) == {"detect", "distil"}
    assert shaped.phases["distil"].rollout_turns == len(marks)
