"""Parts of the cache, read by the programs that read Parquet: pyarrow, pandas, Polars and DuckDB.

Nothing here writes a part; the cache's example `parts` does, and `cargo xtask test --only parquet` runs it. What each row
must say is made here anew from its number. Each program is given the folder as a user would give it.
"""

import datetime
import json
import os
import pathlib

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

FOLDER = pathlib.Path(os.environ["ZEROHOP_PARTS"])
ROWS = 3000
UTC = datetime.timezone.utc
MODELS = ["small", "large", "größe"]
FINISHES = ["stop", "stop_sequence", "tools", "length"]
COLUMNS = {
    "tenant_ns": pyarrow.uint64(),
    "model": pyarrow.string(),
    "prompt_hash": pyarrow.binary(32),
    "context_fingerprint": pyarrow.binary(16),
    "created_at": pyarrow.timestamp("ms", tz="UTC"),
    "expires_at": pyarrow.timestamp("ms", tz="UTC"),
    "hits": pyarrow.uint32(),
    "finish_reason": pyarrow.string(),
    "prompt_tokens": pyarrow.uint32(),
    "completion_tokens": pyarrow.uint32(),
    "generation_ms": pyarrow.uint32(),
    "request": pyarrow.string(),
    "body": pyarrow.string(),
    "body_bytes": pyarrow.uint32(),
    "body_crc32c": pyarrow.uint32(),
}
# What the file says of the body as it lies in the file is checked by the cache's own tests.
TOLD = [name for name in COLUMNS if name not in ("body_bytes", "body_crc32c")]


def body(number: int) -> str:
    text = f"Answer {number}: né 世界. " * (number % 60)
    if number == 77:
        text = "long " * 200_000
    return f'{{"number":{number},"text":"{text}"}}'


def row(number: int) -> dict:
    """What the columns must say of a row."""
    third, fourth = number >> 8, number & 255
    return {
        "tenant_ns": 2**64 - 1 - number % 2,
        "model": MODELS[number % 3],
        "prompt_hash": bytes([third, fourth] * 16),
        "context_fingerprint": bytes([fourth] * 16),
        "created_at": datetime.datetime.fromtimestamp(1_790_000_000 + number, UTC),
        "expires_at": None if number % 4 == 0 else datetime.datetime.fromtimestamp(4_000_000_000, UTC),
        "hits": number % 7,
        "finish_reason": FINISHES[number % 4],
        "prompt_tokens": number,
        "completion_tokens": 2**32 - 1 - number,
        "generation_ms": number * 2,
        "request": f'["request {number}"]' if number % 5 == 0 else None,
        "body": body(number),
    }


@pytest.fixture(scope="module")
def expected() -> list:
    return [row(number) for number in range(2 * ROWS)]


def same(found: list, expected: list) -> None:
    """The rows as dictionaries; one by one, for a message that can be read."""
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected):
        assert {name: got[name] for name in TOLD} == wanted


def test_the_files_are_their_owners():
    names = sorted(path.name for path in FOLDER.iterdir())
    assert names == [".part-3.tmp", "part-1.parquet", "part-2.parquet"]
    for name in names[1:]:
        assert (FOLDER / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number, form, codec", [(1, "plain", "UNCOMPRESSED"), (2, "cold", "ZSTD")])
def test_the_body_column_is_laid_out_for_serving(number, form, codec):
    metadata = pyarrow.parquet.ParquetFile(FOLDER / f"part-{number}.parquet").metadata
    assert metadata.num_row_groups == 1 and metadata.num_rows == ROWS
    assert metadata.metadata[b"zerohop.form"] == form.encode()
    assert metadata.metadata[b"zerohop.number"] == str(number).encode()
    index = list(COLUMNS).index("body")
    column = metadata.row_group(0).column(index)
    assert column.path_in_schema == "body" and column.compression == codec
    assert set(column.encodings) <= {"PLAIN", "RLE"} and not column.has_dictionary_page
    assert not column.is_stats_set and column.has_offset_index
    assert metadata.schema.column(index).max_definition_level == 0


def test_pyarrow(expected):
    table = pyarrow.parquet.read_table(FOLDER)
    assert {field.name: field.type for field in table.schema} == COLUMNS
    same(table.to_pylist(), expected)
    sizes = table.column("body_bytes").to_pylist()
    assert sizes[:ROWS] == [len(wanted["body"].encode()) for wanted in expected[:ROWS]]
    assert sum(sizes[ROWS:]) < sum(sizes[:ROWS]) / 2


def test_pandas(expected):
    frame = pandas.read_parquet(FOLDER)
    assert list(frame.columns) == list(COLUMNS)
    assert list(frame["body"]) == [wanted["body"] for wanted in expected]
    assert frame["expires_at"].isna().sum() == 2 * ROWS / 4
    tokens = frame.groupby("model")["prompt_tokens"].sum().to_dict()
    assert tokens == {model: sum(range(at, 2 * ROWS, 3)) for at, model in enumerate(MODELS)}


def test_polars(expected):
    frame = polars.read_parquet(FOLDER / "*.parquet")
    assert frame.columns == list(COLUMNS)
    same(frame.to_dicts(), expected)
    # Lazily, with a predicate that the statistics help with.
    late = polars.scan_parquet(FOLDER / "*.parquet").filter(polars.col("prompt_tokens") >= ROWS)
    assert late.select(polars.len()).collect().item() == ROWS


def test_duckdb(expected):
    parts = f"read_parquet('{FOLDER}/*.parquet')"
    told = duckdb.sql(f"SELECT * FROM {parts} ORDER BY prompt_tokens").to_arrow_table()
    assert told.column_names == list(COLUMNS)
    assert told.column("body").to_pylist() == [wanted["body"] for wanted in expected]
    groups = duckdb.sql(
        f"""SELECT model, finish_reason, count(*), sum(hits), sum(CAST(body->>'number' AS BIGINT)), max(created_at)
            FROM {parts} GROUP BY ALL"""
    ).fetchall()
    found = {group[:2]: group[2:5] for group in groups}
    wanted = {}
    for number, told in enumerate(expected):
        key = (told["model"], told["finish_reason"])
        count, hits, numbers = wanted.get(key, (0, 0, 0))
        wanted[key] = (count + 1, hits + told["hits"], numbers + json.loads(told["body"])["number"])
    assert found == wanted
    # One row by its key, as an operator looks for it.
    hash = expected[1234]["prompt_hash"]
    one = duckdb.execute(f"SELECT prompt_tokens FROM {parts} WHERE prompt_hash = ?", [hash]).fetchall()
    assert one == [(1234,)]
