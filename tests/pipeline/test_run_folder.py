import pytest

from pivotune.core.errors import RecipeError, StoreError
from pivotune.core.types import Cost
from pivotune.pipeline.recipe import Recipe
from pivotune.pipeline.run_folder import RunFolder


def test_a_finished_stage_is_skipped_and_a_started_one_goes_on(tmp_path):
    folder = RunFolder(tmp_path, Recipe())
    assert folder.begin("import", ("a", 1))
    assert RunFolder(tmp_path, Recipe()).begin("import", ("a", 1))
    folder.finish("import", Cost(seconds=2.0))
    again = RunFolder(tmp_path, Recipe())
    assert not again.begin("import", ("a", 1))
    assert again.marks["import"].cost.seconds == 2.0


def test_other_settings_are_refused_not_mixed(tmp_path):
    folder = RunFolder(tmp_path, Recipe())
    folder.begin("train/sft", 1)
    with pytest.raises(RecipeError, match="--redo train"):
        folder.begin("train/sft", 2)


def test_redo_drops_a_stage_and_what_follows(tmp_path):
    folder = RunFolder(tmp_path, Recipe())
    for stage in ("import", "profile", "select", "train/sft"):
        folder.begin(stage, 0)
        folder.finish(stage)
    folder.profiles("progress").parent.mkdir()
    folder.profiles("progress").write_text("x")
    folder.trajectories.write_text("x")
    folder.redo("profile")
    assert set(folder.marks) == {"import"}
    assert folder.trajectories.exists()
    assert not folder.profiles("progress").exists()


def test_a_stage_that_has_not_run_is_named(tmp_path):
    with pytest.raises(StoreError, match="run import first"):
        RunFolder(tmp_path, Recipe()).settings("import")


def test_a_cheap_stage_is_done_again_under_new_settings(tmp_path):
    folder = RunFolder(tmp_path, Recipe())
    folder.begin("plan", 1)
    folder.finish("plan")
    assert not folder.begin("plan", 1, cheap=True)
    assert folder.begin("plan", 2, cheap=True)


def test_what_earlier_times_of_a_cheap_stage_cost_stays_charged(tmp_path):
    folder = RunFolder(tmp_path, Recipe())
    for settings, seconds in ((1, 2.0), (2, 3.0)):
        assert folder.begin("plan", settings, cheap=True)
        folder.finish("plan", Cost(seconds=seconds))
    assert RunFolder(tmp_path, Recipe()).marks["plan"].cost == Cost(seconds=5.0)


def test_processes_on_one_folder_keep_each_others_marks(tmp_path):
    first, second = RunFolder(tmp_path, Recipe()), RunFolder(tmp_path, Recipe())
    assert first.begin("train/sft", 1)
    assert second.begin("train/pivotrl", 1)
    first.finish("train/sft", Cost(seconds=1.0))
    second.finish("train/pivotrl")
    marks = RunFolder(tmp_path, Recipe()).marks
    assert {name: mark.done for name, mark in marks.items()} == {
        "train/sft": True,
        "train/pivotrl": True,
    }
    assert marks["train/sft"].cost == Cost(seconds=1.0)
