"""Comparisons of models: tallies read, tallies of a run, and tallies played and kept."""

import json
from contextlib import contextmanager

import pytest

from loopback import Loopback
from pivotune.core.errors import DataError, StoreError
from pivotune.evaluate.tallies import read_tallies
from pivotune.pipeline.compare import compare
from pivotune.pipeline.counting import Wanted

COUNTS = {"base": (2, 2, 2, 2), "always": (4, 4, 0, 0), "worse": (0, 1, 0, 1)}


class Quiet:
    """Shows nothing; raises after `limit` finished episodes."""

    def __init__(self, limit=10**9):
        self.limit, self.done, self.titles = limit, 0, []

    def say(self, text):
        pass

    @contextmanager
    def progress(self, title, total, unit):
        self.titles.append(title)

        def advance(n):
            self.done += n
            if self.done > self.limit:
                raise KeyboardInterrupt

        yield advance


def tally_file(folder, name, n=4):
    path = folder / f"{name}.csv"
    rows = [f"task {i},{c},{n}" for i, c in enumerate(COUNTS[name])]
    path.write_text("\n".join(["task,c,n", *rows]) + "\n")
    return str(path)


def test_tallies_of_any_origin_are_compared_and_kept(tmp_path):
    files = [tally_file(tmp_path, name) for name in COUNTS]
    out = tmp_path / "out"
    found = compare(files[0], files[1:], Wanted(), out, Quiet())
    assert found.findings.k == 2
    always, worse = found.findings.comparisons
    # Base: C(1) = 1/2, C(2) = 5/6. The collapsed model has no headroom left.
    assert always.tax_area.value == pytest.approx(1 / 3)
    assert always.tax_share.value == pytest.approx(2 / 3)
    assert worse.crossover.value == 1
    assert found.router[2] in {"base", "either"}
    stored = json.loads((out / "tax.json").read_text())
    assert stored["findings"]["comparisons"][0]["name"] == "always"
    assert "pass@k = 1 - C(n-c, k)/C(n, k)" in stored["convention"]
    assert "always has less left to gain" in (out / "tax.html").read_text()
    for name in COUNTS:
        assert read_tallies(out / "tallies" / f"{name}.csv") == read_tallies(
            tmp_path / f"{name}.csv"
        )


def test_fewer_rollouts_on_one_side_set_the_budget(tmp_path):
    base, post = tally_file(tmp_path, "base", n=8), tally_file(tmp_path, "always", n=4)
    assert compare(base, [post], Wanted(), tmp_path / "out", Quiet()).findings.k == 2
    with pytest.raises(DataError, match="no task has 5 rollouts"):
        compare(base, [post], Wanted(k=5), tmp_path / "out", Quiet())


def test_models_of_one_name_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    base = tally_file(tmp_path, "base")
    posts = [tally_file(tmp_path / folder, "always") for folder in ("a", "b")]
    found = compare(base, posts, Wanted(), tmp_path / "out", Quiet())
    assert [each.name for each in found.findings.comparisons] == ["a/always", "b/always"]
    with pytest.raises(DataError, match="two models are called"):
        compare(base, [posts[0], posts[0]], Wanted(), tmp_path / "out", Quiet())
    with pytest.raises(DataError, match="nothing to compare"):
        compare(base, [], Wanted(), tmp_path / "out", Quiet())


def test_a_model_is_played_and_a_stopped_comparison_goes_on(tmp_path):
    out = tmp_path / "out"
    wanted = Wanted(suite="skills:eval", tasks=8, rollouts=3, k=2)
    base = tmp_path / "base.jsonl"
    with pytest.raises(KeyboardInterrupt):
        compare("lab", ["lab"], wanted, out, Quiet(limit=10))
    log = out / "outcomes" / "lab.jsonl"
    assert len(log.read_text().splitlines()) == 11
    watch = Quiet()
    compare("lab", ["lab"], wanted, out, watch)
    counted = read_tallies(out / "tallies" / "base.csv")
    assert len(counted) == 8
    assert {tally.n for tally in counted.values()} == {3}
    # A second model, counted elsewhere on the same tasks, and one more rollout: only that is new.
    rows = [{"task": task, "c": 2, "n": 4} for task in counted]
    base.write_text("\n".join(map(json.dumps, rows)))
    more = Wanted(suite="skills:eval", tasks=8, rollouts=4, k=2)
    before = log.read_text()
    found = compare(str(base), ["lab"], more, out, Quiet())
    assert log.read_text().startswith(before)
    assert len(log.read_text().splitlines()) == 32
    (lab,) = found.findings.comparisons
    outcomes = [json.loads(line) for line in log.read_text().splitlines()]
    won = sum(each["reward"] >= 0.5 for each in outcomes)
    assert lab.post.curve.values[0] == pytest.approx(won / 32)
    assert "prompts: the model's own chat template" in found.sources["lab"]
    with pytest.raises(StoreError, match="other weights or settings"):
        compare(str(base), ["lab"], Wanted("skills:eval", 8, 4, 0.5), out, Quiet())


def test_an_endpoint_is_played_like_any_model(tmp_path):
    """It answers nothing but one word, so every task that is not that word is lost."""

    def answer(asked):
        if asked.path == "/v1/models":
            return {"data": [{"id": "mine", "max_model_len": 4096}]}
        return "no"

    wanted = Wanted(suite="skills:eval", tasks=8, rollouts=2)
    with Loopback(answer) as server:
        first = compare(f"{server.url}#mine", ["lab"], wanted, tmp_path / "out", Quiet())
    counted = read_tallies(tmp_path / "out" / "tallies" / "base.csv")
    assert len(counted) == 8
    assert all(tally.n == 2 for tally in counted.values())
    assert sum(tally.successes for tally in counted.values()) <= 4
    assert "the endpoint's own template" in first.sources["base"]
    assert (tmp_path / "out" / "outcomes" / "mine.jsonl").exists()
