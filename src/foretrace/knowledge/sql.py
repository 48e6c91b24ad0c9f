"""What Polars' SQL can and may do, and how it words its errors.

Source: Polars 2.1 (``pl.SQLContext``), each function tried; its reference of table operations and functions
(https://docs.pola.rs/api/python/stable/reference/sql/). A test tries every function named here.
"""

from __future__ import annotations

import re

__all__ = [
    "AFTER_SELECT_LIST",
    "BEGINNINGS",
    "CHANGING",
    "FUNCTIONS",
    "MESSAGES",
    "NO_ALIAS",
    "NO_ALIAS_AFTER",
    "OFFERED",
    "OTHER_NAMES",
    "OUT_OF_MEMORY",
    "QUERY_BYTES",
    "QUERY_SECONDS",
    "TABLE_FUNCTIONS",
    "TYPES",
    "UNIT_KEEPING",
    "UNORDERED",
    "is_table_function",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# How a query may begin.
BEGINNINGS = frozenset({"select", "with"})

# Statements that change something, or that read or write files: refused wherever a statement can begin.
CHANGING = _words(
    "alter analyze attach call copy create deallocate delete detach drop execute export grant import insert install "
    "load merge pragma prepare rename replace revoke set truncate update use vacuum"
)

# What stands where a table does and makes one: files are read by some, memory filled by others.
TABLE_FUNCTIONS = frozenset({"generate_series", "range", "unnest"})
_READING = re.compile(
    r"(read|scan|sniff|glob|open|load|from|write|sink|copy)_?(csv|parquet|ipc|json|ndjson|avro|delta)"
)
_FILE_WORDS = re.compile(r"(read|scan|write|sink)_\w+")


def is_table_function(name: str) -> bool:
    """Whether a function of this name makes a table, from a file or from nothing."""
    name = name.lower()
    return name in TABLE_FUNCTIONS or bool(_FILE_WORDS.match(name) or _READING.match(name))


# A query with one of these gives its rows in no order that is the same every time, unless ORDER BY says one.
UNORDERED = frozenset({"group", "distinct", "join", "union", "intersect", "except"})

# Words that end a select list; words that are no name behind an expression (`case … end`), and those behind which
# a word is no name either (`x is null`).
AFTER_SELECT_LIST = _words(
    "from into where group having order limit offset fetch union intersect except qualify window for sort cluster "
    "distribute lateral minus"
)
NO_ALIAS = frozenset({"end", "null", "true", "false"})
NO_ALIAS_AFTER = _words(
    "and or not is like ilike similar rlike regexp in between over distinct case when then else any all some from "
    "select interval date timestamp time xor div mod"
)

FUNCTIONS = _words(
    # numbers
    "abs acos asin atan atan2 cbrt ceil ceiling cos cosd cot cotd degrees div exp floor ln log log10 log1p log2 mod pi "
    "pow power radians round sign sin sind sqrt tan tand trunc truncate bit_and bit_or bit_xor bit_not bit_count "
    # over many rows
    "array_agg avg corr count covar covar_pop covar_samp first group_concat last listagg max median min quantile_cont "
    "quantile_disc stddev stddev_samp stdev stdev_samp string_agg sum var var_samp variance "
    # text
    "bit_length char_length character_length concat concat_ws ends_with initcap left length lower lpad ltrim normalize "
    "octet_length regexp_like regexp_replace replace reverse right rpad rtrim split_part starts_with string_to_array "
    "strpos substr substring trim upper "
    # choice
    "coalesce greatest if ifnull least nullif "
    # windows
    "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"
)

# Those whose result has the unit of what they are given.
UNIT_KEEPING = _words(
    "abs avg ceil ceiling coalesce first first_value floor greatest ifnull lag last last_value lead least max median "
    "min nth_value nullif quantile_cont quantile_disc round stddev stddev_samp stdev stdev_samp sum trunc truncate"
)

# What other engines call a function, and what it is here.
OTHER_NAMES = {
    "mean": "avg",
    "average": "avg",
    "percentile": "quantile_cont",
    "percentile_cont": "quantile_cont",
    "percentile_disc": "quantile_disc",
    "approx_quantile": "quantile_cont",
    "quantile": "quantile_cont",
    "stddev_pop": "stddev",
    "len": "length",
    "nvl": "coalesce",
    "iff": "if",
    "iif": "if",
    "contains": "regexp_like",
    "instr": "strpos",
    "any_value": "first",
    "regexp_matches": "regexp_like",
}

# What a query may be made of, for sentences.
OFFERED = "SELECT with WITH, JOIN, WHERE, GROUP BY, HAVING, window functions, UNION, ORDER BY and LIMIT"

# The engine's names of types, and ours.
TYPES = {"str": "text", "bool": "boolean", "f64": "number", "f32": "number", "i64": "integer", "i32": "integer"}

# First match wins; what the sentence is made of stands in the groups.
MESSAGES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (key, re.compile(pattern, re.DOTALL))
    for key, pattern in (
        ("column", r"unable to find column \"(?P<name>.*?)\"(; valid columns: \[(?P<valid>.*?)\])?"),
        ("column", r"no column named '(?P<name>.*?)' found in table '(?P<table>.*?)'"),
        ("column", r"column '(?P<name>.*?)' (was )?not found"),
        ("relation", r"(relation|table) '(?P<name>.*?)' was not found"),
        ("alias", r"no table or struct column named '(?P<name>.*?)' found"),
        ("function", r"unsupported function '(?P<name>.*?)'"),
        ("arguments", r"no function matches the given name and arguments: `(?P<name>.*?)`"),
        ("ungrouped", r"'(?P<name>.*?)' should participate in the GROUP BY"),
        ("duplicate", r"duplicate output name '(?P<name>.*?)'"),
        ("duplicate", r"column with name '(?P<name>.*?)' has more than one occurrence"),
        ("zero", r"division by zero"),
        ("types", r"cannot compare string with numeric type"),
        ("operation", r"`(?P<name>\w+)` operation not supported for dtype `(?P<type>.*?)`"),
        ("operation", r"arithmetic on dtypes (?P<type>.*?) (is )?not allowed"),
        ("crossed", r"cross joins would produce more rows|maximum length reached"),
        ("syntax", r"sql parser error: (?P<what>.*)"),
        ("unsupported", r"(?P<what>.*?) (is|are) (currently |yet )?not (currently |yet )?supported"),
        ("unsupported", r"not yet implemented: (?P<what>.*)"),
    )
)

# What Rust writes before it ends a process that gets no more memory (std::alloc).
OUT_OF_MEMORY = "memory allocation of"

# A query ends after this time, and where it takes this much memory more than its tables do (or half of the machine's).
QUERY_SECONDS = 60.0
QUERY_BYTES = 8_000_000_000
