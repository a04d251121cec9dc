"""What the oracle marks in a policy's games, and what its recoveries would teach.

    python benchmarks/recoveries.py [POLICY]

100 games of seen rooms, at most 20 turns, at temperature 1; marks and recoveries (K = 2) as
`pivot_opd` makes them. Counts of marks a game, and of the verbs that recoveries teach; how far the
hinted self-teacher is from the policy (A_distil) on the token of a mistake that it likes least. The
last line is JSON.
"""

import json
import sys
from collections import Counter

import numpy as np

from pivotune.models.threads import limit_threads

limit_threads()

from moments import command_of  # noqa: E402

from pivotune.domains.household.environment import (  # noqa: E402
    HouseholdEnvironment,
    generated_task,
)
from pivotune.domains.household.generator import TINY_GAMES  # noqa: E402
from pivotune.lab.mixture import SHOWN  # noqa: E402
from pivotune.models.policy import load_policy  # noqa: E402
from pivotune.models.sampler import TorchSampler  # noqa: E402
from pivotune.pipeline.recipe import model_path  # noqa: E402
from pivotune.train.gaps import Spoken, token_gaps  # noqa: E402
from pivotune.turns.hints import ACTION_HINT, with_action_hint  # noqa: E402
from pivotune.turns.mistakes import OracleTeacher  # noqa: E402
from pivotune.turns.recovery import RecoveryConfig, sample_recoveries  # noqa: E402
from pivotune.turns.rollout import (  # noqa: E402
    EpisodeLimits,
    Play,
    contexts,
    run_episodes,
)

GAMES = 100


def main() -> None:
    """Play, mark, recover, count."""
    sampler = TorchSampler(load_policy(model_path(sys.argv[1] if sys.argv[1:] else "lab")))
    tasks = [generated_task(70_000 + number, "seen", TINY_GAMES) for number in range(GAMES)]
    episodes = run_episodes(
        sampler,
        [Play(task) for task in tasks],
        lambda _: HouseholdEnvironment(SHOWN),
        temperature=1.0,
        seed=3,
        limits=EpisodeLimits(max_turns=20, max_tokens=32),
    )
    teacher = OracleTeacher(lambda _: HouseholdEnvironment(SHOWN))
    findings = teacher.detect(episodes, limit=5, seed=0).findings
    marked = list(zip(episodes, findings, strict=True))
    mistakes = [
        (f"{number} turn {mark.turn}", episode, mark.turn)
        for number, (episode, finding) in enumerate(marked)
        for mark in finding.marks
    ]
    recovered = sample_recoveries(
        sampler,
        teacher,
        lambda _: HouseholdEnvironment(SHOWN),
        mistakes,
        RecoveryConfig(2, 10 * GAMES, 1.0, 48, ACTION_HINT),
        seed=0,
    )
    states = [(contexts(e)[mark.turn], e, mark) for e, f in marked for mark in f.marks]
    told = [
        Spoken(with_action_hint(state, mark.gold), e.tools, e.turns[mark.turn].completion)
        for state, e, mark in states
    ]
    own = [Spoken(state, e.tools, e.turns[mark.turn].completion) for state, e, mark in states]
    gaps, _ = token_gaps(sampler, sampler, told, own, 1.0)
    lowest = [float(gap.min()) for gap in gaps if gap is not None]
    verbs = Counter(command_of(each.gold).split(" ")[0] for each in recovered.items)
    marks = Counter(len(finding.marks) for finding in findings)
    result = {
        "games": GAMES,
        "marks": len(mistakes),
        "games_by_marks": dict(sorted(marks.items())),
        "recoveries": len(recovered.items),
        "verbs": dict(verbs.most_common()),
        "lowest_gap_quartiles": [round(q, 1) for q in np.percentile(lowest, [25, 50, 75])],
    }
    print(json.dumps(result))


main()
