"""``foretrace sql`` as a user meets it."""

import io
import json
from pathlib import Path

import polars as pl
import pytest

from foretrace.cli import main

DATA = Path(__file__).parents[1] / "data" / "traces"
TRAIN = str(DATA / "mlp_train_eager.json.gz")
EAGER = str(DATA / "mlp_eager.json.gz")
KINDS = "select kind, count(*) as n, sum(duration_us) as total_us from kernels group by kind order by total_us desc"


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretrace import cli

    monkeypatch.setitem(cli.COMMANDS, "sql", "ask a trace in SQL")


def sql(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["sql", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_table_on_the_screen(capsys):
    code, out, _ = sql(capsys, TRAIN, KINDS)
    assert code == 0
    assert out == (
        "kind          n  total_us\n"
        "gemm         27      1471\n"
        "elementwise  33     643.0\n"
        "copy          6     55.45\n"
        "reduction     3     24.48\n"
    )


def test_null_is_shown_as_such(capsys):
    _, out, _ = sql(capsys, TRAIN, "select kind, flops, cache_assisted as c from kernels where flops is null limit 1")
    assert out.splitlines()[1].split() == ["elementwise", "NULL", "false"]


def test_rows_beyond_the_screen_are_counted(capsys):
    _, out, _ = sql(capsys, TRAIN, "select event from ops")
    assert len(out.splitlines()) == 42
    assert out.splitlines()[-1] == "398 more rows; --top N shows more, --all every one"
    _, out, _ = sql(capsys, TRAIN, "select event from ops", "--top", "437")
    assert out.splitlines()[-1].startswith("1 more row;")
    _, out, _ = sql(capsys, TRAIN, "select event from ops", "--all")
    assert len(out.splitlines()) == 439


def test_a_result_too_wide_says_what_it_leaves_out(capsys):
    _, out, _ = sql(capsys, TRAIN, "select * from kernels limit 2")
    assert all(len(row) <= 100 for row in out.splitlines())
    said = " ".join(out.split())
    assert "31 columns not shown at this width: module, step, step_label, phase" in said
    assert "or see all with --all, --csv or --json" in said
    _, out, _ = sql(capsys, TRAIN, "select * from kernels limit 2", "--all")
    assert "epilogue" in out.splitlines()[0]
    assert "not shown" not in out


def test_one_wide_row_is_folded(capsys):
    _, out, _ = sql(capsys, TRAIN, "select * from kernels limit 1")
    assert len(out.splitlines()) == 38
    assert out.splitlines()[3].split() == ["kind", "gemm"]


def test_no_rows_are_said(capsys):
    code, out, _ = sql(capsys, TRAIN, "select event, kind from kernels where kind = 'attention'")
    assert (code, out) == (0, "no rows; columns: event, kind\n")


def test_json_is_one_line_with_types_and_units(capsys):
    code, out, _ = sql(capsys, TRAIN, KINDS, "--json", "--top", "1")
    document = json.loads(out)
    assert code == 0
    assert out.count("\n") == 1
    assert document["schema"] == "foretrace.sql/1"
    assert document["columns"] == [
        {"name": "kind", "type": "text", "unit": None},
        {"name": "n", "type": "integer", "unit": None},
        {"name": "total_us", "type": "number", "unit": "µs"},
    ]
    assert document["rows"] == [["gemm", 27, pytest.approx(1470.877)]]
    assert (document["truncated"], document["total"]) == (True, 4)


def test_json_has_every_row_and_no_number_that_json_lacks(capsys):
    document = json.loads(sql(capsys, TRAIN, "select event, duration_us / 0 as d, flops from kernels", "--json")[1])
    assert (len(document["rows"]), document["truncated"]) == (69, False)
    assert document["rows"][0][1] is None


def test_csv_on_standard_output(capsys):
    _, out, _ = sql(capsys, TRAIN, "select kind, min(flops) as f from kernels group by kind", "--csv")
    assert out.splitlines() == ["kind,f", "copy,", "elementwise,", "gemm,38654705664", "reduction,"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "rows.parquet", "rows.csv.gz"])
def test_files_by_their_names(name: str, capsys, tmp_path: Path):
    target = tmp_path / name
    code, out, err = sql(capsys, TRAIN, KINDS, "-o", str(target))
    assert (code, out) == (0, "")
    assert err == f"foretrace: wrote {target}\n"
    if name.endswith("json"):
        assert len(json.loads(target.read_bytes())["rows"]) == 4
    else:
        read = pl.read_parquet if name.endswith("parquet") else pl.read_csv
        assert read(target)["n"].to_list() == [27, 33, 6, 3]
    code, _, err = sql(capsys, TRAIN, KINDS, "-o", str(target))
    assert code == 2
    assert "--force" in err
    assert sql(capsys, TRAIN, KINDS, "-o", str(target), "--force")[0] == 0


def test_the_query_from_a_file_and_from_standard_input(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "q.sql"
    file.write_text("-- how many\nselect count(*) as n from kernels;\n")
    assert sql(capsys, TRAIN, f"@{file}")[1].split() == ["n", "69"]
    monkeypatch.setattr("sys.stdin", io.StringIO("select count(*) as n from ops"))
    assert sql(capsys, TRAIN, "-")[1].split() == ["n", "438"]


def test_the_trace_from_standard_input(capsys, monkeypatch: pytest.MonkeyPatch):
    class Input:
        buffer = io.BytesIO(Path(EAGER).read_bytes())

    monkeypatch.setattr("sys.stdin", Input())
    assert sql(capsys, "-", "select count(*) as n from kernels")[1].split() == ["n", "15"]


def test_rows_of_a_step(capsys):
    assert sql(capsys, EAGER, "select count(*) as n from kernels", "--step", "1")[1].split() == ["n", "5"]
    code, _, err = sql(capsys, EAGER, "select 1 as one", "--step", "9")
    assert code == 2
    assert "there is no step '9'" in err


def test_the_schema_needs_no_trace(capsys):
    code, out, _ = sql(capsys, "--schema")
    assert code == 0
    for name in ("events", "kernels", "transfers", "launches", "ops", "steps"):
        assert f"\n{name}\n" in f"\n{out}"
    assert all(len(row) <= 100 for row in out.splitlines())
    _, out, _ = sql(capsys, "--tables", "steps")
    assert out.startswith("steps\n")
    assert "kernels\n  One row" not in out
    document = json.loads(sql(capsys, "--schema", "kernels", "--json")[1])
    assert document["schema"] == "foretrace.tables/1"
    assert document["tables"][0]["columns"][0]["name"] == "event"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a trace and a query"),
        ([TRAIN], "a query is missing"),
        ([TRAIN, "select", "1"], "put it in quotes"),
        ([TRAIN, "@nope.sql"], "the query cannot be read from nope.sql: No such file or directory"),
        ([TRAIN, "drop table kernels"], "DROP is refused"),
        ([TRAIN, "select nme from kernels"], "did you mean 'name'?"),
        (["nope.json", "select 1"], "nope.json"),
        (["nope.json", "drop table kernels"], "DROP is refused"),
        (["-", "-"], "can be read only once"),
        ([TRAIN, "select 1", "-o", "rows.txt"], "a name ends in .csv, .json or .parquet"),
        ([TRAIN, "select 1", "-o", "rows.csv", "--json"], "--json asks for another form"),
        ([TRAIN, "select 1", "-o", "rows.parquet.gz"], "packed twice"),
        (["--schema", "kernel"], "there is no table 'kernel'"),
        (
            [
                TRAIN,
                "with recursive t as (select 1 as n union all select n + 1 from t) select * from t",
                "--timeout",
                ".5",
            ],
            "took longer than 0.5",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_done_is_said_in_one_sentence(words: list[str], said: str, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = sql(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_a_query_of_the_wrong_encoding(capsys, tmp_path: Path):
    file = tmp_path / "q.sql"
    file.write_bytes(b"select '\xff'")
    code, _, err = sql(capsys, TRAIN, f"@{file}")
    assert code == 2
    assert "it is no text in UTF-8" in err


def test_names_of_a_trace_cannot_steer_the_terminal(capsys, tmp_path: Path):
    from builders import TraceBuilder

    build = TraceBuilder()
    build.kernel("evil \x1b[31m\nname", 0, 5)
    path = build.write(tmp_path / "evil.json")
    _, out, _ = sql(capsys, str(path), 'select name, name as "\x1b[0mhead" from kernels')
    assert "\x1b" not in out
    assert "evil \\x1b[31m\\nname" in out
    assert len(out.splitlines()) == 2


def test_csv_cannot_steer_a_terminal_and_is_whole_elsewhere(capsys, monkeypatch, tmp_path: Path):
    from builders import TraceBuilder

    build = TraceBuilder()
    build.kernel("=evil \x1b[31m", 0, 5)
    path = str(build.write(tmp_path / "evil.json"))
    assert sql(capsys, path, "select name from kernels", "--csv")[1] == "name\n=evil \x1b[31m\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert sql(capsys, path, "select name from kernels", "--csv")[1] == "name\n=evil \\x1b[31m\n"


def test_the_file_that_is_read_is_never_replaced(capsys, tmp_path: Path):
    file = tmp_path / "q.csv"
    file.write_text("select 1 as one")
    code, _, err = sql(capsys, TRAIN, f"@{file}", "-o", str(file), "--force")
    assert code == 2
    assert "is read here" in err
