"""What notebooks show of traces, reports, comparisons and checks."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

import foretrace
from foretrace.report.ink import markup
from foretrace.report.notebook import html_of
from foretrace.report.text import Span, line

SAMPLES = Path(foretrace.__file__).parent / "cli" / "samples"
EAGER = SAMPLES / "h200_mlp_eager.trace.json.gz"


class Text(HTMLParser):
    """The text a browser would show, and the elements it would make."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags = "", set()
        self.feed(html)

    def handle_starttag(self, tag, _):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


def test_a_report_shows_the_first_screen_and_folds_the_sections():
    shown = Text(foretrace.explain(EAGER)._repr_html_())
    assert "VERDICT" in shown.text
    assert "compute-bound" in shown.text
    assert "nvjet 192x128 64x5 TN" in shown.text
    assert "Dispatch chain" in shown.text
    assert shown.tags == {"div", "style", "pre", "span", "details", "summary"}


def test_a_notebook_is_not_told_of_flags_of_the_command_line():
    assert "--" not in Text(foretrace.explain(EAGER)._repr_html_()).text.partition("VERDICT")[2].partition("Health")[0]


def test_a_trace_shows_what_the_file_holds():
    shown = Text(foretrace.load(EAGER)._repr_html_()).text
    assert "140 rows · 3 steps" in shown
    assert any(words.split() == ["kernel", "15"] for words in shown.splitlines())


def test_a_comparison_and_a_check_show_their_verdicts():
    pair = [SAMPLES / "h200_geglu_forward" / f"{name}.trace.json.gz" for name in ("compile", "foretrace")]
    assert "CONCLUSION" in Text(foretrace.compare(pair)._repr_html_()).text
    checked = foretrace.check(foretrace.load(EAGER), foretrace.expect(kernels=4))
    assert "BROKEN" in Text(checked._repr_html_()).text


def test_the_shell_shows_the_screen_and_not_a_repr_of_megabytes():
    from IPython.lib.pretty import pretty

    shown = pretty(foretrace.explain(EAGER))
    assert shown.startswith("foretrace  h200_mlp_eager.trace.json.gz")
    assert "VERDICT  compute-bound" in shown
    assert len(shown) < 5000


def test_names_from_a_trace_stay_text():
    shown = markup([line(Span("</pre><script>alert('1')</script>\x1b[2J\u202e", "bad"))])
    name = "&lt;/pre&gt;&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;\\x1b[2J\\u202e"
    assert shown == f'<pre><span class="bad">{name}</span></pre>'


def test_what_has_no_form_for_a_notebook_is_refused():
    with pytest.raises(TypeError, match="a notebook is shown no int"):
        html_of(3)
