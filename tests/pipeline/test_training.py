from pivotune.pipeline.training import is_set


def test_settings_of_mixed_methods_are_found():
    """A method that needs turns of its own gets them, also inside a mixture."""
    inner = {"objective": "local_grpo", "settings": {"guard": 4}}
    mixed = {"sources": {"a": {"objective": "sft"}, "b": inner}}
    assert is_set("guard", mixed)
    assert is_set("guard", {"sources": {"c": {"objective": "mixed", "settings": mixed}}})
    assert not is_set("refresh", mixed)
