"""How the Perfetto UI opens traces that others serve: its address, its links, its limits.

Sources, all of Perfetto's own repository (github.com/google/perfetto) and pages (perfetto.dev/docs), read in November
2026: ``docs/visualization/deep-linking-to-perfetto-ui.md``, ``docs/visualization/large-traces.md``,
``tools/open_trace_in_ui``, ``ui/src/frontend/index.ts`` (the content security policy), ``ui/src/core/router.ts`` and
``ui/src/public/route_schema.ts`` (links), ``ui/src/frontend/trace_url_handler.ts`` (fetching),
``ui/src/plugins/dev.perfetto.DeeplinkQuerystring`` (what a link selects),
``src/trace_processor/importers/json/json_trace_tokenizer.cc`` (timestamps).

Known: the parameters below, and that they may stand behind ``#!/?``, where they never leave the browser (the router
merges both places). The plugin runs ``select id from slice where ts = … and dur = …`` and selects the first row; it
ignores a visible range that is not inside the trace's own bounds. ``ts``, ``visStart`` and ``visEnd`` are compared
with the times of the loaded trace: the page calls that "the boottime clock", which a JSON trace has none of; its
times are the file's own ``ts``, and nothing adds ``baseTimeNanoseconds``.
Not known: whether a release reads ``pid`` and ``tid``, which the page documents and the plugin's current source does
not; and which of several rows of the same start and duration is selected.
"""

from __future__ import annotations

__all__ = [
    "ACCELERATOR",
    "ALLOW_PRIVATE_NETWORK",
    "ASK_PRIVATE_NETWORK",
    "LOCAL_ACCESS_NOTE",
    "LOOPBACK",
    "PARAMETERS",
    "PORT",
    "UI_ORIGIN",
    "UI_TEXT_LIMIT",
    "UI_TRACE_LINK",
    "perfetto_ns",
]

# The one origin of the released UI; what CORS must allow.
UI_ORIGIN = "https://ui.perfetto.dev"
# Behind the hash: the address of the trace is then part of no request to the UI's server.
UI_TRACE_LINK = f"{UI_ORIGIN}/#!/?"

# The UI's content security policy lets it connect to http://127.0.0.1:9001 and no other port of this machine, nor to
# "localhost" (ui/src/frontend/index.ts; open_trace_in_ui says the same). The port is that of trace_processor's server.
LOOPBACK = "127.0.0.1"
PORT = 9001

# What a link may carry (the page above, "Opening the trace at a specific event or time"); times are integer ns.
PARAMETERS = ("url", "ts", "dur", "pid", "tid", "visStart", "visEnd", "query")

# "2GB is typical" of the memory a tab may use, several times the size of the trace once it is loaded (large-traces.md);
# reports of failures begin at about 1 GB of JSON (google/perfetto#99, #138, #1392). Bytes of text, uncompressed.
UI_TEXT_LIMIT = 1_000_000_000
# large-traces.md: a native server on the same port that the UI finds by itself.
ACCELERATOR = "trace_processor --httpd"

# Chrome once asked a server on a private address for consent with these headers (Private Network Access); since
# Chrome 142 it asks the user instead (Local Network Access, developer.chrome.com/blog/local-network-access).
ASK_PRIVATE_NETWORK = "Access-Control-Request-Private-Network"
ALLOW_PRIVATE_NETWORK = "Access-Control-Allow-Private-Network"
LOCAL_ACCESS_NOTE = (
    "Chrome asks once whether ui.perfetto.dev may reach this device: allow it, or the UI says 'Failed to fetch'"
)


def perfetto_ns(ns: int) -> int:
    """The time in ns that Perfetto has for a time of a JSON trace that is exactly ``ns``.

    The file says it in µs; Perfetto reads that as a float64, takes a whole number of µs times 1000 and rounds any
    other to the nearest ns (``CoerceToTs``). From 2**43 µs on (absolute clocks of torch 2.2 and 2.3) this differs
    from the exact time by up to some 250 ns, and a link with the exact time selects nothing.
    """
    us = ns / 1000  # of two integers: the float64 nearest to the decimal text
    return int(us) * 1000 if us.is_integer() else round(us * 1000.0)
