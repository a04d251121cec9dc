import math

import pytest

from pivotune.core.errors import DataError, SamplerError
from pivotune.core.protocols import ScoreRequest
from pivotune.core.types import Message, Task
from pivotune.domains.skills.environment import SkillEnvironment
from pivotune.evaluate.choices import answer_by_choice, check_rollouts
from pivotune.evaluate.suites import Suite, evaluate_suite, score_suite, tallies
from pivotune.models.policy import load_policy
from pivotune.models.sampler import TorchSampler
from pivotune.models.scripted import ScriptedSampler
from pivotune.pipeline.recipe import Recipe

ANSWERS = ("no", "yes", "yes and no")


class Question(SkillEnvironment):
    """The first answer is right; the question is the task's prompt."""

    tools = ()

    def reset(self, task):
        self._reward = 0.0
        return (Message("user", task.payload["asks"]),)

    def choices(self):
        return tuple(Message("assistant", each) for each in ANSWERS)

    def choose(self, logprobs):
        self.given = tuple(logprobs)
        self._reward = float(max(logprobs) == logprobs[0])

    def reward(self):
        return self._reward


@pytest.fixture(scope="module")
def sampler():
    return TorchSampler(load_policy(Recipe().model_path))


def questions(*prompts):
    return tuple(Task(f"q{i}", "toy", payload={"asks": each}) for i, each in enumerate(prompts))


def test_a_choice_s_log_probability_is_that_of_its_tokens_without_the_end(sampler):
    made = []

    def make(task):
        made.append(Question())
        return made[-1]

    ended = []
    (task,) = questions("Is it cold?")
    answer_by_choice(sampler, [task], make, lambda *each: ended.append(each))
    state = made[0].reset(task)
    chat = sampler.policy.chat
    actions = [chat.render_action(state, (), Message("assistant", each))[1] for each in ANSWERS]
    scores = sampler.score([ScoreRequest(state, (), tuple(each)) for each in actions])
    expected = [math.fsum(each.logprobs[:-1]) for each in scores]
    assert made[0].given == pytest.approx(expected, abs=1e-4)
    ((number, episode, cost),) = ended
    assert (number, episode.ended, episode.turns) == (0, "done", ())
    assert cost.prompt_tokens == sampler.count(state, ()) + sum(map(len, actions))


def test_a_suite_of_choices_is_played_resumed_and_counted(sampler, tmp_path):
    suite = Suite("toy:choices", "out_of_domain", questions("Is it cold?", "Is it warm?"))
    path = tmp_path / "log.jsonl"
    found = evaluate_suite(sampler, suite, lambda _: Question(), seed=0, path=path)
    before = path.read_bytes()
    again = evaluate_suite(sampler, suite, lambda _: Question(), seed=0, path=path)
    assert (again, path.read_bytes()) == (found, before)
    assert all(each.n == 1 for each in tallies(found).values())
    share, cost = score_suite(sampler, suite, lambda _: Question(), seed=0)
    assert share == sum(each.reward for each in found) / 2
    assert cost.prompt_tokens == sum(each.cost.prompt_tokens for each in found)


def test_what_cannot_be_scored_is_invalid_and_never_wrong(sampler):
    ended = []
    long = "word " * (sampler.context_limit + 1)
    answer_by_choice(
        sampler,
        questions(long, "short?"),
        lambda _: Question(),
        lambda *each: ended.append(each),
    )
    first, second = (episode for _, episode, _ in ended)
    assert (first.reward, first.ended) == (None, "failed")
    assert "cannot be scored" in first.problem
    assert second.reward is not None
    with pytest.raises(SamplerError, match="log-probabilities"):
        answer_by_choice(
            ScriptedSampler(lambda *_: "no"), questions("?"), lambda _: Question(), print
        )
    with pytest.raises(DataError, match="the same answer every time"):
        check_rollouts(2, "toy")
