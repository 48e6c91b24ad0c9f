"""SQL over the tables: what is answered, what is refused, and what every error says."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analysis.tables import Tables, engine
from foretrace.analysis.tables.result import flat, result_of
from foretrace.analysis.tables.statement import read_statement
from foretrace.errors import InputError
from foretrace.knowledge.sql import FUNCTIONS, OTHER_NAMES, TABLE_FUNCTIONS, UNIT_KEEPING
from foretrace.trace import load

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def training() -> Tables:
    return Tables(load(DATA / "traces" / "mlp_train_eager.json.gz"))


def test_a_join_of_kernels_and_operators(training: Tables):
    found = training.query(
        "select k.kind, o.name, count(*) as n from kernels k join ops o on k.op_event = o.event "
        "where k.kind = 'gemm' group by k.kind, o.name"
    )
    assert found.rows() == [("gemm", "aten::mm", 27)]


def test_rows_without_an_order_come_in_order_of_their_columns(training: Tables):
    kinds = training.query("select kind, count(*) as n from kernels group by kind")["kind"].to_list()
    assert kinds == sorted(kinds)
    assert len(kinds) == 4


def test_a_plain_select_keeps_the_order_of_the_table(training: Tables):
    assert training.query("select event from kernels").equals(training.frame("kernels").select("event"))


def test_a_limit_and_how_many_rows_there_are(training: Tables):
    answer = training.ask("select * from kernels", limit=2)
    assert (answer.frame.height, answer.rows, answer.truncated) == (2, 69, True)
    answer = training.ask("select * from kernels", limit=69)
    assert (answer.frame.height, answer.rows, answer.truncated) == (69, 69, False)
    assert training.query("select * from kernels", limit=0).height == 0


def test_arguments_come_only_when_they_are_named(training: Tables):
    found = training.query("select event, args from events where kind = 'kernel'", limit=1).to_dicts()[0]
    row = training.trace.event.tolist().index(found["event"])
    assert json.loads(found["args"]) == training.trace.args(row)
    assert "args" not in training.query("select * from events", limit=1).columns


def test_the_columns_that_cost_are_there_when_they_are_named():
    tables = Tables(load(DATA / "traces" / "mlp_eager.json.gz"))
    assert (
        "flops" not in tables.for_query(read_statement("select kind, count(*) from kernels group by kind"))["kernels"]
    )
    assert tables.query("select \"flops\" as f from kernels where kind = 'gemm'")["f"].null_count() == 0
    assert tables.query("select * from kernels", limit=1)["flops"].dtype == pl.Int64
    with pytest.raises(InputError, match="did you mean 'flops'"):
        tables.query("select flop from kernels")


def test_a_sum_of_nothing_known_is_null(training: Tables):
    assert training.query("select sum(flops) as f from kernels where flops is null").item() is None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "the query is empty"),
        (" ; -- nothing", "the query is empty"),
        ("drop table kernels", "DROP is refused"),
        ("create table x as select * from kernels", "CREATE is refused"),
        ("insert into kernels values (1)", "INSERT is refused"),
        ("with x as (delete from kernels) select 1", "DELETE is refused"),
        ("show tables", "SHOW is refused"),
        ("explain select 1", "EXPLAIN is refused"),
        ("values (1)", "begins with SELECT or WITH, not with 'values'"),
        ("select 1; select 2", "more than one statement"),
        ("select * from read_csv('/etc/passwd')", r"read_csv\(\) is refused"),
        ("select * from /* a */ Read_Parquet /* b */ ('x')", r"read_parquet\(\) is refused"),
        ("select * from \"read_json\" ('x')", r"read_json\(\) is refused"),
        ("select (select count(*) from read_ipc('x'))", r"read_ipc\(\) is refused"),
        ("select * from generate_series(1, 9000000000)", r"generate_series\(\) is refused"),
        (r"select E'\'' from kernels", "plain single quotes"),
        ("select $$a$$", "plain single quotes"),
        ("select 'a", "is not closed"),
        ("select 1 /* a", "is not closed"),
    ],
    ids=lambda value: value[:24].replace("\\", ""),
)
def test_what_is_no_query_is_refused_before_anything_runs(sql: str, said: str):
    with pytest.raises(InputError, match=said) as error:
        read_statement(sql)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "sql",
    [
        "select name from kernels where name like '%read_csv(%'",
        "select replace(name, 'a', 'b') as r from ops -- drop table ops; read_csv('x')",
        "(select 1 as one)",
        "with a as (select 1 as one) select one from a;",
        "select ';' as semicolon /* /* nested */ ; */",
    ],
)
def test_what_only_looks_like_more_is_a_query(sql: str, training: Tables):
    assert training.query(sql).width == 1


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select nme from kernels", "no column 'nme' in kernels; did you mean 'name'"),
        ("select gpu_us from kernels", "no column 'gpu_us' in kernels; launches and ops have it"),
        ("select k.dtypes from kernels k", "no column 'dtypes' in kernels; did you mean 'dtype'"),
        ("select * from kernel", "no table 'kernel'; did you mean 'kernels'"),
        ('select * from kernels where kind = "gemm"', "text stands in single quotes: 'gemm'"),
        ('select "Kind" from kernels', 'between double quotes capital letters count: "kind"'),
        ("select z.name from kernels k", "no table or alias of the query goes with 'z'"),
        ("select mean(duration_us) from kernels", r"no function mean\(\); did you mean avg\(\)"),
        ("select xyzzy(name) from kernels", r"no function xyzzy\(\); there are abs"),
        ("select name, sum(duration_us) from kernels", "'name' has more than one value in a group"),
        ("select name, name from kernels", "two columns of the result are named 'name'"),
        ("select sum(name) from kernels", r"sum cannot be done with the types of its columns \(text\)"),
        ("select event from kernels where step = '#3'", "position of a step .* stands in step_label"),
        ("select 0.0 / 0", r"divided by zero; nullif\(x, 0\)"),
        ("select name from kernels where", "the query cannot be read: .*; a query can have SELECT"),
        ("select * from kernels tablesample (10)", "does not know table `SAMPLE` clause; a query can have"),
    ],
    ids=lambda value: value[:30],
)
def test_an_error_of_the_engine_becomes_one_sentence(sql: str, said: str, training: Tables):
    with pytest.raises(InputError, match=said) as error:
        training.query(sql)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 or "xyzzy" in sql


def test_a_query_that_never_ends_is_ended(training: Tables):
    endless = "with recursive t as (select 1 as n union all select n + 1 from t) select * from t"
    with pytest.raises(InputError, match=r"took longer than 0\.5"):
        training.query(endless, timeout=0.5)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says how much memory a process has")
def test_a_query_that_takes_too_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch, training: Tables):
    monkeypatch.setattr(engine, "_allowance", lambda: 100_000_000)
    with pytest.raises(InputError, match=r"needs more than 100 MB of memory"):
        training.query("select rpad(a.name, 20000, 'x') as n from events a, events b")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_no_file_can_be_read_whatever_the_query_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: Tables):
    (tmp_path / "secret.csv").write_text("p\nhunter2\n")
    monkeypatch.setattr("foretrace.analysis.tables.statement.is_table_function", lambda name: False)
    with pytest.raises(InputError, match="Too many open files"):
        training.query(f"select * from read_csv('{tmp_path / 'secret.csv'}')")


def test_tables_are_as_they_were_after_any_query(training: Tables):
    before = training.frame("kernels").clone()
    training.query("select event + 1 as event from kernels", limit=3)
    assert training.frame("kernels").equals(before)


@pytest.mark.parametrize(("limit", "timeout"), [(-1, None), (None, 0), (None, -3.0)])
def test_a_limit_and_a_time_that_make_no_sense(limit: int | None, timeout: float | None, training: Tables):
    with pytest.raises(InputError):
        training.query("select 1", limit=limit, timeout=timeout)


def test_the_documented_functions_are_those_of_the_engine():
    frame = pl.DataFrame({"x": [1, 2], "y": [0.5, 0.25], "n": ["a", "b"], "b": [True, False]}).lazy()
    context = pl.SQLContext(frames={"a": frame})
    unknown = set(FUNCTIONS)
    for name in FUNCTIONS:
        for arguments in ("n", "n, 1", "n, 1, 1"):
            try:
                context.execute(f"select {name}({arguments}) from a").collect()
            except pl.exceptions.PolarsError as error:
                if "unsupported function" in str(error):
                    continue
            unknown.discard(name)
    assert unknown == set()
    assert UNIT_KEEPING <= FUNCTIONS
    assert set(OTHER_NAMES.values()) <= FUNCTIONS
    assert not set(OTHER_NAMES) & FUNCTIONS
    assert not TABLE_FUNCTIONS & FUNCTIONS


# Headers


@pytest.mark.parametrize(
    ("sql", "heads"),
    [
        (
            "select count(distinct stream), count(*) filter (where kind='gemm') from kernels",
            ["count(distinct stream)", "count(*) filter (where kind='gemm')"],
        ),
        (
            "select avg(duration_us), stddev( duration_us ), min(duration_us) /* a */ from kernels",
            ["avg(duration_us)", "stddev( duration_us )", "min(duration_us)"],
        ),
        ("select count(*), count(*) from kernels", ["count(*)", "count(*):1"]),
        ("select -duration_us, not graph, k.kind from kernels k", ["-duration_us", "not graph", "kind"]),
        ('select count(*) n, max(step) as m, min(step) "least" from kernels', ["n", "m", "least"]),
        ("select case when graph then 1 else 0 end from kernels", ["case when graph then 1 else 0 end"]),
        ("select case when graph then 1 else 0 end g from kernels", ["g"]),
        ("select op is null, cast(step as double) from kernels", ["op is null", "cast(step as double)"]),
        ("select upper(kind), count(*) from kernels group by upper(kind)", ["upper(kind)", "count(*)"]),
        ("select sum(duration_us) from kernels group by kind order by sum(duration_us)", ["sum(duration_us)"]),
        ("select distinct\n  upper(kind) from kernels", ["upper(kind)"]),
        ("select * from (select count(*) from kernels)", ["count(*)"]),
        ("with t as (select max(step) from ops) select * from t", ["max(step)"]),
        ("select count(*) from ops union all select max(step) from kernels", ["count(*)"]),
        ("select 'a\"b, c', 1", ["'a\"b, c'", "1"]),
        (
            "select sum(duration_us) over (partition by kind) from kernels limit 1",
            ["sum(duration_us) over (partition by kind)"],
        ),
        # The engine's own name is asked for: it stays.
        ("select kind, sum(duration_us) from kernels group by kind order by duration_us", ["kind", "duration_us"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_column_is_called_what_is_written(sql: str, heads: list[str], training: Tables):
    assert training.query(sql, limit=1).columns == heads


def test_a_long_expression_is_cut_in_the_header(training: Tables):
    [head] = training.query("select " + " + ".join(["step"] * 100) + " from kernels", limit=1).columns
    assert len(head) == 120
    assert head.endswith("…")


# Units


@pytest.mark.parametrize(
    ("sql", "units"),
    [
        ("select duration_us, bytes, of_peak from kernels", ["µs", "B", None]),
        ("select sum(duration_us) as total_us, count(*) as n_us from kernels", ["µs", None]),
        ("select avg(duration_us) from kernels", ["µs"]),
        ("select count(duration_us) from kernels", [None]),
        ("select duration_us / 1000 from kernels", [None]),
        ("select variance(duration_us) from kernels", [None]),
        ("select round(sum(k.duration_us), 2), max(duration_us + start_us) from kernels k", ["µs", None]),
        ("select sum(duration_us) filter (where stream > 7), min(bytes) from kernels", ["µs", "B"]),
        ("select sum(case when duration_us > 5 then 1.5 else 0.5 end) from kernels", [None]),
        ("select greatest(duration_us, start_us), least(duration_us, 5.5) from kernels", [None, "µs"]),
    ],
)
def test_a_unit_is_said_only_where_it_still_holds(sql: str, units: list[str | None], training: Tables):
    assert [found.unit for found in result_of(training.ask(sql, limit=1)).columns] == units


def test_lists_stay_lists_in_a_document_and_become_text_elsewhere(training: Tables):
    answer = training.ask("select kind, array_agg(event) as events from kernels group by kind")
    document = result_of(answer)
    assert [found.type for found in document.columns] == ["text", "list"]
    assert isinstance(document.rows[0][1], list)
    assert json.loads(flat(answer.frame)["events"][0]) == document.rows[0][1]


# Whatever is typed


_PIECES = st.sampled_from(
    [
        "select ",
        "*",
        " from ",
        "kernels",
        "(",
        ")",
        "'",
        '"',
        "--",
        "/*",
        "*/",
        ";",
        "\n",
        "$",
        "E'",
        "drop ",
        "read_csv",
    ]
)


@given(st.lists(_PIECES | st.text(max_size=3), max_size=12).map("".join))
def test_reading_a_statement_never_fails_in_another_way(text: str):
    try:
        said = read_statement(text).sql
    except InputError as error:
        said = str(error)
    assert said == text or "\n" not in said


@given(st.text(max_size=30))
def test_a_text_hides_whatever_stands_in_it(text: str):
    quoted = text.replace("'", "''")
    assert read_statement(f"select '{quoted}' as t").names == {"select", "as", "t"}
