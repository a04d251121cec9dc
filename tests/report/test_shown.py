from hypothesis import given, settings
from hypothesis import strategies as st

from pivotune.report.shown import difference
from pivotune.report.text import show


def test_a_difference_marks_the_words_that_the_expert_does_not_have() -> None:
    pieces = list(difference('act(command="go to desk 1")', 'act(command="go to desk 2 now")'))
    assert "".join(piece.text for piece in pieces) == 'act(command="go to desk 2 now")'
    assert [piece.text for piece in pieces if piece.differs] == ["2 now"]
    assert not any(piece.differs for piece in difference("same text", "same text"))
    assert list(difference("x", "")) == []
    long = "word " * 500
    assert [piece.differs for piece in difference(long, long + "more")] == [False]


@settings(deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_a_difference_loses_nothing(expert: str, action: str) -> None:
    assert "".join(piece.text for piece in difference(expert, action)) == show(action)
