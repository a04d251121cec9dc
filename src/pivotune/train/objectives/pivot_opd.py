"""PivotOPD: distillation at pivotal mistakes, on top of GRPO over episodes.

    episodes + outcomes --teacher--> pivotal turns t with gold actions a*, a lesson
    A_d(l) = log p(y_l | c, h, y_<l) - log p(y_l | c, y_<l)       weights frozen at the step's start

    preventive   w_prev * A_d with h = h(a*)      added on the recorded response at a pivotal turn
    lesson       w_traj * A_d with h = the lesson           added on every response of the episode
    recovery     w_rec * clip(A_d, -delta, delta) alone     on hinted responses just after it

Nothing of it is clipped but the recovery. The recovery surrogate is not the gradient of the
forward KL that it is named after: it descends half the mean squared log-ratio under the
teacher. `recovery_loss = "cross_entropy"` is the exact forward KL (up to the teacher's
entropy), estimated on the teacher's own samples. A term whose weight is 0 is not built at all:
with all three at 0 no teacher is asked, and the step is GRPO's bit for bit.

The preventive surrogate is the reverse KL's gradient over all that the policy would say at that
turn; on what it did say there, chosen because it is a mistake, A_d is hardly ever above 0: it
takes probability from the mistake and gives it to nothing in particular. `prevention_loss =
"cross_entropy"` (ours) trains the hinted response in its place.

A group whose rewards are all equal trains the responses that have a term, and nothing else.
Hinted contexts exist on the teacher's side only; what is trained is searched for their passages.
The variant "external" (published for SWE) needs no detection: the teacher's own log-probs on
the last committed action of one failed episode a group. Published settings of w_rec: 1.0, 0.25
and 0.0625 to 0.125; w_prev = w_traj = 0.001, or 0.1 where prevention is used alone.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pivotune.core.errors import RecipeError
from pivotune.core.seeds import derive_seed
from pivotune.core.types import Cost, Episode, Message
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import Floats, TokenTree
from pivotune.train.episodes import (
    EpisodeConfig,
    EpisodeGroup,
    EpisodeObjective,
    Row,
    Shaped,
    TeacherUse,
    all_rows,
    grpo_rows,
)
from pivotune.train.gaps import Spoken, score_actions, token_gaps
from pivotune.train.objective import Materials, required
from pivotune.train.pivotal import (
    Clock,
    DistilLoss,
    Place,
    assert_no_hint,
    finding_metrics,
    first_failed,
    last_committed,
    recovery_tree,
    unsaid,
    with_terms,
)
from pivotune.train.taught import scoring_teacher
from pivotune.train.teachers import TeacherConfig, open_teacher
from pivotune.turns.hints import (
    ACTION_HINT,
    LESSON_HINT,
    check_template,
    hint_passages,
    with_action_hint,
    with_lesson,
)
from pivotune.turns.mistakes import Finding, OracleTeacher, agreement, scattered
from pivotune.turns.recovery import (
    Recovered,
    RecoveryConfig,
    sample_corrections,
    sample_recoveries,
)
from pivotune.turns.rollout import contexts


class PivotOpdConfig(EpisodeConfig, frozen=True, forbid_unknown_fields=True):
    """Defaults are the published ones for household games."""

    teacher: TeacherConfig = TeacherConfig()
    """Who detects and suggests."""
    variant: Literal["pivots", "external"] = "pivots"
    """"external": the teacher's own log-probs on one failed episode's last action, K = 0."""
    marks: int = 5
    """m: pivotal turns an episode at most."""
    turns: Literal["detected", "random"] = "detected"
    """"random": as many turns an episode as were detected, drawn at random (the ablation)."""
    w_prev: float = 0.001
    """Weight of the preventive term."""
    prevention_loss: DistilLoss = "surrogate"
    """"cross_entropy" (ours): the likelihood of what the hinted self-teacher says instead."""
    w_traj: float = 0.001
    """Weight of the lesson term."""
    w_rec: float = 1.0
    """Weight of the recovery sequences."""
    recovery_turns: int = 2
    """K: hinted turns after each pivotal one."""
    recovery_limit: int = 64
    """Recoveries of a step at most."""
    recovery_loss: DistilLoss = "surrogate"
    """What recovery sequences are trained with."""
    delta: float = 5.0
    """Clip of the recovery's advantage."""
    hint: str = ACTION_HINT
    """The passage with {action} that the self-teacher is shown; empty: none, for tests."""
    lesson_hint: str = LESSON_HINT
    """The same with {lesson}."""

    @property
    def recovers(self) -> bool:
        """Whether there are recovery sequences."""
        return self.variant == "pivots" and self.w_rec > 0 and self.recovery_turns > 0

    @property
    def detects(self) -> bool:
        """Whether episodes are read by a teacher at all."""
        return self.variant == "pivots" and bool(self.w_prev or self.w_traj or self.recovers)

    @property
    def teacher_use(self) -> TeacherUse:
        if self.variant == "external":
            return "scores" if self.w_prev else ""
        return "answers" if self.detects and self.teacher.kind == "model" else ""


class PivotOpd(EpisodeObjective):
    """Detects, compares, recovers; every part is a phase of the ledger."""

    name = "pivot_opd"
    Config = PivotOpdConfig

    def __init__(self, materials: Materials, config: PivotOpdConfig) -> None:
        super().__init__(materials, config)
        check_template(config.hint, "action")
        check_template(config.lesson_hint, "lesson")
        if min(config.w_prev, config.w_traj, config.w_rec) < 0 or config.delta <= 0:
            raise RecipeError("pivot_opd: weights start at 0 and delta is above 0")
        if config.variant == "external" and config.prevention_loss == "cross_entropy":
            raise RecipeError(
                "pivot_opd: an external teacher says nothing to imitate",
                fix='use prevention_loss = "surrogate", or variant = "pivots"',
            )
        self._seed = materials.seed
        self._chat: ChatFormat = required(materials.chat, "a chat format", self.name)
        self._student = self.rollouts.sampler
        self._make = required(materials.make_environment, "environments", self.name)
        if config.teacher_use == "scores":
            self._external = scoring_teacher(materials, self.name)
        elif config.detects:
            self._teacher = open_teacher(materials, config.teacher, self.name)

    def inspect(self, groups: Sequence[EpisodeGroup], trees: Sequence[TokenTree]) -> None:
        passages = [*hint_passages(self.config.hint), *hint_passages(self.config.lesson_hint)]
        assert_no_hint(self._chat, trees, unsaid(passages, groups))

    def shape(self, groups: Sequence[EpisodeGroup], step: int) -> Shaped:
        if self.config.variant == "external":
            return self._shape_external(groups)
        if not self.config.detects:
            return Shaped(grpo_rows(groups))
        clock = Clock()
        seed = derive_seed(self._seed, self.name, step)
        rows = all_rows(groups)
        detected = self._teacher.detect(
            [row.episode for row in rows], limit=self.config.marks, seed=seed
        )
        checked, used = self._check_teacher(rows, detected.findings, step)
        used += detected.cost
        if self.config.turns == "random":
            episodes = [row.episode for row in rows]
            detected = scattered(self._teacher, episodes, detected.findings, self._make, seed=seed)
            used += detected.cost
        found = list(zip(rows, detected.findings, strict=True))
        phases = {"detect": clock.stop(used)}
        terms, too_long, used = self._distil(found)
        if self.config.w_prev or self.config.w_traj:
            phases["distil"] = clock.stop(used)
        more: list[TokenTree] = []
        metrics = {
            **finding_metrics(found),
            **checked,
            "hinted_too_long": float(too_long),
            **{f"teacher: {reason}": float(n) for reason, n in detected.problems.items()},
        }
        if self.config.w_prev and self.config.prevention_loss == "cross_entropy":
            more, counts, used = self._correct(found, seed)
            phases["distil"] += clock.stop(used)
            metrics |= counts
        if self.config.recovers:
            recovered, counts, used = self._recover(found, seed)
            phases["recover"] = clock.stop(used)
            more += recovered
            metrics |= counts
        return Shaped(with_terms(groups, terms), more, metrics, Cost(), phases)

    def _check_teacher(
        self, rows: Sequence[Row], findings: Sequence[Finding], step: int
    ) -> tuple[dict[str, float], Cost]:
        """Before any training: a model's marks against the oracle's, where there is one."""
        if step or not rows or isinstance(self._teacher, OracleTeacher):
            return {}, Cost()
        task = rows[0].group.task
        environment = self._make(task)
        environment.reset(task)
        if environment.oracle() is None:
            return {}, Cost()
        episodes = [row.episode for row in rows]
        most = max(len(episode.turns) for episode in episodes)
        truth = OracleTeacher(self._make).detect(episodes, limit=most, seed=0)
        found = agreement(findings, truth.findings)
        shares = {
            "teacher_precision": found.precision,
            "teacher_recall": found.recall,
            "teacher_within_one": found.within_one,
        }
        return {name: each for name, each in shares.items() if each is not None}, truth.cost

    def _distil(
        self, found: Sequence[tuple[Row, Finding]]
    ) -> tuple[dict[Place, Floats], int, Cost]:
        """What is added to the advantages by place, and the number of hints that did not fit."""
        told: list[Spoken] = []
        own: list[Spoken] = []
        places: list[tuple[Place, float]] = []
        for row, finding in found:
            for turn, weight, state, hinted in self._hinted(row.episode, finding):
                tools, said = row.episode.tools, row.episode.turns[turn].completion
                told.append(Spoken(hinted, tools, said))
                own.append(Spoken(state, tools, said))
                places.append(((row.group.task.id, row.number, turn), weight))
        gaps, cost = token_gaps(self._student, self._student, told, own, self.config.temperature)
        terms: dict[Place, Floats] = {}
        for (place, weight), gap in zip(places, gaps, strict=True):
            if gap is not None:
                terms[place] = terms.get(place, np.float32(0)) + np.float32(weight) * gap
        return terms, sum(gap is None for gap in gaps), cost

    def _hinted(
        self, episode: Episode, finding: Finding
    ) -> list[tuple[int, float, tuple[Message, ...], tuple[Message, ...]]]:
        """(turn, weight, context, hinted context) of an episode's preventive and lesson terms."""
        config, states = self.config, contexts(episode)
        pairs = []
        if config.w_prev and config.prevention_loss == "surrogate":
            for mark in finding.marks:
                state = states[mark.turn]
                hinted = with_action_hint(state, mark.gold, config.hint)
                pairs.append((mark.turn, config.w_prev, state, hinted))
        if config.w_traj and finding.lesson:
            for turn, state in enumerate(states[:-1]):
                hinted = with_lesson(state, finding.lesson, config.lesson_hint)
                pairs.append((turn, config.w_traj, state, hinted))
        return pairs

    def _correct(
        self, found: Sequence[tuple[Row, Finding]], seed: int
    ) -> tuple[list[TokenTree], dict[str, float], Cost]:
        """Trees of what the hinted student says at the pivotal turns themselves."""
        marked = [
            (f"{row.name} turn {mark.turn}", row.episode, mark)
            for row, finding in found
            for mark in finding.marks
        ]
        corrected = sample_corrections(
            self._student, marked, self._hinting(), derive_seed(seed, "correction")
        )
        config = self.config
        trees, used = self._taught(corrected, config.w_prev, config.prevention_loss)
        metrics = {"corrections": float(len(trees))}
        metrics |= {f"correction: {reason}": float(n) for reason, n in corrected.ended.items()}
        return trees, metrics, corrected.cost + used

    def _recover(
        self, found: Sequence[tuple[Row, Finding]], seed: int
    ) -> tuple[list[TokenTree], dict[str, float], Cost]:
        """Trees of the hinted responses just behind the pivotal turns."""
        mistakes = [
            (f"{row.name} turn {mark.turn}", row.episode, mark.turn)
            for row, finding in found
            for mark in finding.marks
        ]
        recovered = sample_recoveries(
            self._student, self._teacher, self._make, mistakes, self._hinting(), seed
        )
        trees, used = self._taught(recovered, self.config.w_rec, self.config.recovery_loss)
        metrics = {"recoveries": float(len(trees))}
        metrics |= {f"recovery: {reason}": float(n) for reason, n in recovered.ended.items()}
        return trees, metrics, recovered.cost + used

    def _hinting(self) -> RecoveryConfig:
        config = self.config
        return RecoveryConfig(
            config.recovery_turns,
            config.recovery_limit,
            config.temperature,
            config.max_tokens,
            config.hint,
        )

    def _taught(
        self, recovered: Recovered, weight: float, loss: DistilLoss
    ) -> tuple[list[TokenTree], Cost]:
        """Trees of hinted responses at their un-hinted contexts, where those fit."""
        spoken = [Spoken(each.history, each.tools, each.completion) for each in recovered.items]
        scores, cost = score_actions(self._student, spoken, self.config.temperature)
        trees = [
            recovery_tree(
                self._chat,
                each,
                np.asarray(score.logprobs, np.float32),
                weight=weight,
                delta=self.config.delta,
                loss=loss,
            )
            for each, score in zip(recovered.items, scores, strict=True)
            if score is not None
        ]
        return trees, cost

    def _shape_external(self, groups: Sequence[EpisodeGroup]) -> Shaped:
        clock = Clock()
        chosen = [row for group in groups for row in first_failed(group)]
        marks = [(row, last_committed(row.episode)) for row in chosen]
        spoken = [
            Spoken(
                contexts(row.episode)[turn], row.episode.tools, row.episode.turns[turn].completion
            )
            for row, turn in marks
            if turn is not None
        ]
        places = [(r.group.task.id, r.number, t) for r, t in marks if t is not None]
        if not self.config.w_prev:
            return Shaped(grpo_rows(groups))
        gaps, cost = token_gaps(
            self._external, self._student, spoken, spoken, self.config.temperature
        )
        terms = {
            place: np.float32(self.config.w_prev) * gap
            for place, gap in zip(places, gaps, strict=True)
            if gap is not None
        }
        metrics = {"marks": float(len(terms))}
        return Shaped(with_terms(groups, terms), (), metrics, Cost(), {"distil": clock.stop(cost)})
