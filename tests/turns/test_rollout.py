import pytest

from pivotune.core.protocols import StepResult
from pivotune.core.types import Message, Task, ToolSpec
from pivotune.models.scripted import ScriptedSampler
from pivotune.turns.rollout import EpisodeLimits, Play, run_episodes


class CountDown:
    """Over after as many steps as the task says; breaks when told to."""

    tools = (ToolSpec("act"),)

    def reset(self, task):
        self.left = task.payload["steps"]
        return (Message("user", task.id),)

    def step(self, action):
        if self.left < 0:
            raise RuntimeError("out of order")
        self.left -= 1
        reply = Message("tool", f"{self.left} left")
        return StepResult((reply,), done=self.left == 0)

    def clone(self):
        raise NotImplementedError

    def reward(self):
        return float(self.left == 0)

    def restore(self, turn):
        raise NotImplementedError

    def oracle(self):
        return None


def act(messages, tools, row):
    return "<tool_call>act{}</tool_call>"


def play(steps, *, live=2, max_turns=5, context=10_000, make=CountDown):
    tasks = [Task(f"t{i}", "toy", payload={"steps": n}) for i, n in enumerate(steps)]
    told = []
    episodes = run_episodes(
        ScriptedSampler(act, context_limit=context),
        [Play(task) for task in tasks],
        lambda task: make(),
        temperature=1.0,
        seed=0,
        limits=EpisodeLimits(max_turns=max_turns, max_tokens=8, live=live),
        on_done=lambda number, episode: told.append(number),
    )
    return episodes, told


def test_every_task_is_played_to_its_own_end_in_order():
    episodes, told = play([3, 1, 9, 2])
    assert [e.ended for e in episodes] == ["done", "done", "turns", "done"]
    assert [e.reward for e in episodes] == [1.0, 1.0, 0.0, 1.0]
    assert [len(e.turns) for e in episodes] == [3, 1, 5, 2]
    assert sorted(told) == [0, 1, 2, 3]


def test_the_number_played_at_once_changes_nothing():
    assert play([3, 1, 9, 2], live=1)[0] == play([3, 1, 9, 2], live=50)[0]


def test_a_broken_environment_is_a_failed_episode_without_a_reward():
    (broken, fine), _ = play([-1, 1])
    assert (broken.ended, broken.reward) == ("failed", None)
    assert "out of order" in broken.problem
    assert fine.reward == 1.0


@pytest.mark.parametrize("broken", ["reset", "reward", "nan"])
def test_whatever_breaks_in_an_environment_fails_its_own_episode_only(broken):
    class Odd(CountDown):
        def reset(self, task):
            self.odd = task.id == "t0"
            if self.odd and broken == "reset":
                raise KeyError("no such room")
            return super().reset(task)

        def reward(self):
            if self.odd:
                return float("nan") if broken == "nan" else 1 / 0
            return super().reward()

    found, other = play([2, 2], make=Odd)[0]
    assert (found.ended, found.reward) == ("failed", None)
    said = {"reset": "no such room", "reward": "division by zero", "nan": "the reward is nan"}
    assert said[broken] in found.problem
    assert (other.ended, other.reward) == ("done", 1.0)


def test_a_history_that_no_longer_fits_ends_the_episode():
    (episode,), _ = play([4], context=16)
    assert episode.ended == "context"
    assert episode.reward == 0.0
