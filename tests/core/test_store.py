import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pivotune.core.errors import DataError, StoreError
from pivotune.core.store import (
    AppendLog,
    encode_json,
    read_json,
    read_records,
    write_atomic,
    write_json,
    write_records,
)
from pivotune.core.types import Cost, Message


def test_a_log_killed_at_any_byte_keeps_exactly_the_complete_records(tmp_path):
    records = [Cost(rollout_turns=i, seconds=i / 3) for i in range(4)]
    whole = b"".join(encode_json(record) + b"\n" for record in records)
    path = tmp_path / "log.jsonl"
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        complete = whole[:size].count(b"\n")
        assert list(read_records(path, Cost)) == records[:complete]
        with AppendLog(path) as log:
            log.append(records[complete:])
        assert path.read_bytes() == whole


@given(st.binary(max_size=200).filter(lambda data: b"\n" not in data))
def test_a_torn_line_of_any_length_is_cut(tmp_path_factory, torn):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_bytes(encode_json(Cost()) + b"\n" + torn)
    with AppendLog(path) as log:
        log.append([Cost(judge_calls=1)])
    assert list(read_records(path, Cost)) == [Cost(), Cost(judge_calls=1)]


def test_a_damaged_record_in_the_middle_names_file_and_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"seconds":1}\n{"seconds":"x"}\n{}\n')
    with pytest.raises(StoreError, match=r"log\.jsonl:2"):
        list(read_records(path, Cost))


def test_an_atomic_write_that_fails_keeps_the_old_file(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, object())
    assert read_json(path, dict) == {"a": 1}
    write_records(path, [Cost()])
    assert list(read_records(path, Cost)) == [Cost()]


def test_several_writers_of_one_file_leave_it_whole(tmp_path):
    path = tmp_path / "recipe.toml"
    texts = [str(number).encode() * 100_000 for number in range(4)]
    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(lambda text: [write_atomic(path, text) for _ in range(20)], texts))
    assert path.read_bytes() in texts
    assert [each.name for each in tmp_path.iterdir()] == ["recipe.toml"]


def test_records_are_written_in_the_memory_of_some_of_them(tmp_path):
    """40 MB in all; a source that fails on the way leaves the old file, and nothing else."""
    path, long = tmp_path / "all.jsonl", Message("user", "x" * 100_000)
    tracemalloc.start()
    write_records(path, (long for _ in range(400)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert list(read_records(path, Message)) == [long] * 400

    def torn():
        yield long
        raise DataError("no more")

    with pytest.raises(DataError):
        write_records(path, torn())
    assert len(list(read_records(path, Message))) == 400
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_error(tmp_path):
    log = AppendLog(tmp_path / "log.jsonl")
    log.append([Cost()])
    log._file.close()
    with open("/dev/full", "ab", buffering=0) as full:  # every write is refused with ENOSPC
        log._file = full
        with pytest.raises(StoreError, match="No space left"):
            log.append([Cost()])
    assert list(read_records(tmp_path / "log.jsonl", Cost)) == [Cost()]


def test_a_folder_in_the_way_is_a_store_error(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(StoreError):
        write_atomic(tmp_path / "x", b"")
    with pytest.raises(StoreError, match="run the stage before"):
        read_json(tmp_path / "missing.json", dict)
