import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ingest.helpers import read_all, write_jsonl
from pivotune.core.errors import DataError
from pivotune.ingest import read_trajectories


def row(i: int) -> dict[str, Any]:
    return {
        "id": f"t{i}",
        "messages": [
            {"role": "user", "content": f"q {i} \u2028 é"},
            {"role": "assistant", "content": f"a {i}"},
        ],
    }


ASSISTANT = {"role": "assistant", "content": "a"}
ROWS = [row(i) for i in range(9)]
LINES = [json.dumps(r, ensure_ascii=False).encode() for r in ROWS]


def ids(path: Path) -> list[str]:
    return [t.id for t in read_all(path)[0]]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_json_lines(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + end.join(LINES))
    assert ids(path) == [r["id"] for r in ROWS]


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_json_list(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS, indent=indent))
    assert ids(path) == [r["id"] for r in ROWS]


def test_documents_over_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("\n".join(json.dumps(r, indent=1) for r in ROWS[:3]))
    assert ids(path) == ["t0", "t1", "t2"]


def test_compressed_files(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    data = b"\n".join(LINES)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data[:500]) + gzip.compress(data[500:]))
    frame = zstandard.ZstdCompressor().compress
    (tmp_path / "a.jsonl.zst").write_bytes(frame(data[:500]) + frame(data[500:]))
    for name in ("a.jsonl.gz", "a.jsonl.zst"):
        assert ids(tmp_path / name) == [r["id"] for r in ROWS]


def test_parquet_pads_nulls_that_are_stripped(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    tools = [
        {"name": n, "parameters": {"type": "object", "properties": {k: {"type": "string"}}}}
        for n, k in (("a", "x"), ("b", "y"))
    ]
    calls = [{"id": "1", "function": {"name": "a", "arguments": {"x": "1"}}}]
    calls += [{"id": "2", "function": {"name": "b", "arguments": {"y": "2"}}}]
    rows = [
        {
            "messages": [
                {"role": "user", "content": "u"},
                {"role": "assistant", "tool_calls": calls},
            ],
            "tools": tools,
        }
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    (t,), report = read_all(tmp_path / "a.parquet")
    assert [c.arguments for c in t.messages[1].tool_calls] == [{"x": "1"}, {"y": "2"}]
    assert report.notes["null padding stripped from arguments"].count == 2
    assert [sorted(s.parameters["properties"]) for s in t.tools] == [["x"], ["y"]]


def test_broken_json_on_line_7(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([*LINES[:6], LINES[6][:-5], *LINES[7:]]))
    trajectories, report = read_all(path)
    assert len(trajectories) == 8
    assert report.refused["broken JSON"].where == f"{path}:7"
    with pytest.raises(DataError, match=r"a\.jsonl:7: broken JSON"):
        list(read_trajectories(path, strict=True))


def test_a_list_broken_in_the_middle_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS, indent=0)[:-200])
    trajectories, report = read_all(path)
    assert len(trajectories) == 7
    assert report.refused["broken JSON"].count == 1


def test_what_follows_a_list_is_no_silent_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS[:2], indent=1) + "\n" + json.dumps(ROWS[2:], indent=1))
    trajectories, report = read_all(path)
    assert [t.id for t in trajectories] == ["t0", "t1"]
    assert report.refused["broken JSON"].detail == "more text after the end of the list"


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_truncated_compression_keeps_what_was_whole(tmp_path: Path, kind: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    data = b"\n".join(LINES * 400)
    compress = gzip.compress if kind == "gz" else zstandard.ZstdCompressor().compress
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(compress(data)[:-50])
    trajectories, report = read_all(path)
    assert len(trajectories) < len(LINES * 400)
    assert next(iter(report.refused)).startswith("truncated")


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_what_stands_before_the_damage_is_read(tmp_path: Path, kind: str) -> None:
    zstandard = pytest.importorskip("zstandard")
    compress = gzip.compress if kind == "gz" else zstandard.ZstdCompressor().compress
    good = [r["id"] for r in ROWS]
    for name, data in (("lines", b"\n".join(LINES)), ("list", b"[" + b",\n".join(LINES) + b"]")):
        path = tmp_path / f"{name}.json.{kind}"
        path.write_bytes(compress(data) + b"\0" * 700)  # tapes and block devices pad with zeros
        trajectories, report = read_all(path)
        assert [t.id for t in trajectories] == good
        assert report.refused == {}
        path.write_bytes(compress(data) + b"no such member")
        trajectories, report = read_all(path)
        assert [t.id for t in trajectories] == good
        assert list(report.refused) == [f"damaged {'gzip' if kind == 'gz' else 'zstd'}"]


def test_a_wrong_checksum_loses_no_row(tmp_path: Path) -> None:
    data = gzip.compress(b"\n".join(LINES))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data[:-8] + bytes(4) + data[-4:])
    trajectories, report = read_all(path)
    assert [t.id for t in trajectories] == [r["id"] for r in ROWS]
    assert list(report.refused) == ["damaged gzip"]


def test_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"\n".join(LINES * 50)))
    data[100:140] = bytes(40)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data)
    assert "damaged gzip" in read_all(path)[1].refused


@pytest.mark.parametrize("as_list", [False, True])
def test_invalid_utf8(tmp_path: Path, as_list: bool) -> None:
    path = tmp_path / "a.jsonl"
    bad = LINES[1].replace(b"a 1", b"a \xff")
    path.write_bytes(
        b"[" + b",".join([LINES[0], bad]) + b"]" if as_list else b"\n".join([LINES[0], bad])
    )
    trajectories, report = read_all(path)
    assert list(report.refused) == ["invalid UTF-8"]
    assert [t.id for t in trajectories] == ["t0"]


@pytest.mark.parametrize("as_list", [False, True])
def test_numbers_that_no_computer_holds(tmp_path: Path, as_list: bool) -> None:
    huge = "9" * 6000
    whole = {**row(0), "reward": 10**400}
    rows = [json.dumps(whole), json.dumps(row(1)).replace('"a 1"', huge)]
    path = tmp_path / "a.json"
    path.write_text(f"[{','.join(rows)}]" if as_list else "\n".join(rows))
    (t,), report = read_all(path)
    assert t.reward is None
    assert report.notes["reward that is not finite, read as not recorded"].count == 1
    assert list(report.refused) == ["broken JSON"]


def test_half_of_a_surrogate_pair(tmp_path: Path) -> None:
    lone = json.dumps(row(1)).replace("a 1", "\\ud83d")
    for name, text in (
        ("a.jsonl", f"{lone}\n{json.dumps(row(2))}"),
        ("b.json", f"[{lone}, {json.dumps(row(2))}]"),
    ):
        (tmp_path / name).write_text(text)
        trajectories, report = read_all(tmp_path / name)
        assert [t.id for t in trajectories] == ["t2"]
        assert list(report.refused) == ["text that is not Unicode"]


def test_deeply_nested_json(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"messages": {deep}}}\n' + json.dumps(row(0)))
    trajectories, report = read_all(path)
    assert len(trajectories) == 1
    assert report.refused["nested too deeply"].where == f"{path}:1"
    (tmp_path / "b.json").write_text(f'[{{"messages": {deep}}}]')
    assert "nested too deeply" in read_all(tmp_path / "b.json")[1].refused


def test_a_200_mb_line_is_refused_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(LINES[0] + b'\n{"messages": "')
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + LINES[1])
    tracemalloc.start()
    trajectories, report = read_all(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [t.id for t in trajectories] == ["t0", "t1"]
    assert report.refused["row too long"].where == f"{path}:2"
    assert peak < 150 << 20


@pytest.mark.parametrize("as_list", [False, True])
def test_memory_stays_flat(tmp_path: Path, as_list: bool) -> None:
    """40 MiB in rows of 100 KiB are read in the memory of some rows."""
    line = json.dumps(
        {"messages": [{"role": "user", "content": "x" * 100_000}, ASSISTANT]}
    ).encode()
    lines = [line] * 400
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b",\n".join(lines) + b"]" if as_list else b"\n".join(lines))
    reader = read_trajectories(path)
    tracemalloc.start()
    assert sum(1 for _ in reader) == 400
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20


@pytest.mark.parametrize("content", [b"", b"  \n\n", b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    _, report = read_all(path)
    assert list(report.refused) == ["empty file"]
    with pytest.raises(DataError, match="empty file"):
        report.require_trajectories()


def test_bare_lists_of_messages_on_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(r["messages"]) for r in ROWS[:3]))
    assert len(read_all(path)[0]) == 3
    path.write_text("[]\n")
    assert list(read_all(path)[1].refused) == ["empty file"]


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_trajectories(tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match="no file with traces"):
        read_trajectories(tmp_path)
    with pytest.raises(DataError, match="unknown dialect"):
        read_trajectories(write_jsonl(tmp_path / "a.jsonl", ROWS), dialect="klingon")


def test_folders_are_read_in_a_stable_order(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "b.jsonl", [row(2)])
    (tmp_path / "a").mkdir()
    write_jsonl(tmp_path / "a" / "x.json", [row(1)])
    (tmp_path / "README.md").write_text("no traces")
    trajectories, report = read_all(tmp_path)
    assert [t.id for t in trajectories] == ["t1", "t2"]
    assert len(report.skipped_files) == 1


@pytest.mark.parametrize("value", [1, "text", None, [], {}, {"foo": 1}, {"messages": 3}])
def test_rows_of_no_known_shape(tmp_path: Path, value: Any) -> None:
    _, report = read_all(write_jsonl(tmp_path / "a.jsonl", [row(0), value]))
    assert report.refused["shape of no known dialect"].where.endswith("a.jsonl:2")


def test_nan_in_a_metric_does_not_cost_the_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({**row(0), "reward": float("nan")}))
    (t,), report = read_all(tmp_path / "a.jsonl")
    assert t.reward is None
    assert report.unknown == 1
    assert "reward that is not finite, read as not recorded" in report.notes


def test_the_report_speaks_plainly(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [row(0), {"foo": 1}])
    lines = "\n".join(read_all(path)[1].lines())
    assert "1 trajectories, 1 turns from 1 files" in lines
    assert "refused: shape of no known dialect: 1, first at" in lines
    assert "openai_chat: `messages` is a list" in lines
