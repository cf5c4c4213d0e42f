"""The evaluation report, as a page.

Built twice the same, harmless, and read back in a real browser.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from maccal.evaluation.evaluated import Compared, measure, paired
from maccal.evaluation.predictions import Predictions
from maccal.io import readable
from maccal.metrics import METRICS, softmax
from maccal.metrics.summaries import show, span
from maccal.report.evaluation import evaluation_page
from maccal.report.page import listing

NASTY = "<script>alert('x')</script> & \"quotes\" $\\alpha$ </script><!--"
SETTINGS = {"bins": 15, "resamples": 100, "seed": 0}


def models(first="first", second="second"):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(900, 5)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((900, 1))).argmax(1)
    made = [
        Predictions(scale * logits, "logits", labels, name)
        for scale, name in ((3.0, first), (1.0, second))
    ]
    return made, [measure(p, Path(f"{p.name[:6]}.npz"), **SETTINGS) for p in made]


def page(*names):
    predictions, shown = models(*names)
    return evaluation_page(shown, paired(*predictions, **SETTINGS)), shown


def test_same_input_same_bytes():
    assert page()[0] == page()[0]


def test_nothing_from_outside():
    html, _ = page()
    html = html.replace('xmlns="http://www.w3.org/2000/svg"', "").replace(
        'xmlns:xlink="http://www.w3.org/1999/xlink"', ""
    )
    assert not re.search(r"https?://|//cdn|@import|url\((?!#)|src=", html)


def test_user_strings_are_escaped():
    html, _ = page(NASTY, "second")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert html.count("<script") == 1  # the rows, as data
    rows = json.loads(html.split('id="rows">')[1].split("</script>")[0])
    assert rows[0]["name"] == NASTY


def test_colours_are_the_page_s_own():
    """No placeholder colour is left, so that dark mode reaches the figure."""
    html, _ = page()
    assert "var(--over)" in html
    assert not re.search(r"#01020[3-8]", html)


# a name of placeholders, and of what begins an id
COLOURS = '#010203 #0072b2 url(#x) id="y" href="#z"'


def test_a_name_is_drawn_as_it_is():
    """The colours of a drawing are replaced in its tags alone."""
    html, _ = page(COLOURS, "second")
    drawing = html.split("<figure")[1].split("</figure>")[0]
    assert f">{COLOURS}</text>" in drawing
    assert "var(--over)" in drawing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("caf\udce9", r"caf\udce9"),  # a file name in Latin-1
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines", r"two\nlines"),
        ("naïve 模型 🙂", "naïve 模型 🙂"),
        ("_hidden", "_hidden"),
    ],
)
def test_any_name_can_be_shown(name, shown):
    html, (first, _) = page(name, "second")
    assert html.encode().decode() == html
    assert first.name == first.row.name == readable(name) == shown
    assert html.count(f">{shown}<") >= 2  # a heading and the drawing


@pytest.mark.parametrize("name", ["x" * 250, "模" * 80])
def test_a_long_name_leaves_room_for_the_diagram(name):
    """Without a warning that the axes have shrunk to nothing.

    The page has the whole name, the drawing its beginning.
    """
    html, _ = page(name, "second")
    assert f"<h3>{name}</h3>" in html
    assert f">{name[: 39 if name[0] == 'x' else 19]}…</text>" in html


HISTORY = [
    {"epoch": t, "keep": 0.5 / t, "confidence": 0.9 - 0.1 * t, "target": 0.7} for t in (1, 2, 3)
]


def page_of_four(name="fourth"):
    """Four models, two pairs of them compared, and a path of keep."""
    predictions, _ = models()
    predictions += [
        Predictions(scale * p.scores, "logits", p.labels, n)
        for p, scale, n in zip(predictions, (0.5, 0.4), ("third", name), strict=True)
    ]
    shown = [measure(p, Path("some.npz"), **SETTINGS) for p in predictions]
    pairs = [
        Compared(shown[i], shown[2], paired(predictions[i], predictions[2], **SETTINGS))
        for i in (0, 1)
    ]
    return evaluation_page(shown, pairs, {name: HISTORY}), shown


@pytest.mark.slow
def test_a_page_of_many_models():
    html, shown = page_of_four()
    assert "<title>first, second, third and fourth: " in html
    assert [f"<h3>third against {name}</h3>" in html for name in ("first", "second", "third")] == [
        True,
        True,
        False,
    ]
    assert html.count("ECE: ") >= 2
    assert html.count('<b class="number">') == 4 * len(METRICS)
    assert '<figure class="card wide" id="keep"' in html
    assert ">difference<" not in html
    assert all(f"ECE {100 * m.numbers['ece']:.2f} %" in html for m in shown)
    assert not re.search(r"#01020[3-8]", html)


@pytest.mark.slow
def test_names_of_runs_are_escaped():
    html, _ = page_of_four(NASTY)
    assert html.count("<script") == 1


def test_no_path_of_keep_without_a_history():
    assert 'id="keep"' not in page()[0]


@pytest.mark.parametrize(
    ("words", "sentence"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_listing(words, sentence):
    assert listing(words) == sentence


def test_infinite_numbers_do_not_break_the_page():
    made = Predictions(
        np.array([[1.0, 0.0], [0.6, 0.4]] * 20), "probs", np.array([1, 0] * 20), "sure"
    )
    html = evaluation_page([measure(made, Path("sure.npz"), **SETTINGS)])
    assert "∞" in html
    assert 'cx="nan"' not in html
    assert 'cx="inf"' not in html


def opened(browser, html, tmp_path, **context):
    """The page opened from a file path, with everything it requested and complained about."""
    path = tmp_path / "a report with spaces & ümlauts.html"
    path.write_text(html, encoding="utf-8")
    view = browser.new_context(**context).new_page()
    requests, complaints = [], []
    view.on("request", lambda request: requests.append(request.url))
    view.on("console", lambda message: complaints.append(message.text))
    view.on("pageerror", lambda error: complaints.append(str(error)))
    view.goto(path.as_uri(), wait_until="load")
    assert requests == [path.as_uri()]
    assert complaints == []
    return view


def test_numbers_read_back_from_the_page(browser, tmp_path):
    html, shown = page()
    view = opened(browser, html, tmp_path)
    for key, metric in METRICS.items():
        line = view.locator(f'tr[data-metric="{key}"]')
        assert line.locator("td.number").all_inner_texts() == [
            show(m.numbers[key], metric.percent) for m in shown
        ]
        assert line.locator(".interval").all_inner_texts() == [
            span(m.numbers, key, metric.percent) for m in shown
        ]
        assert line.locator(".null").all_text_contents() == [
            span(m.numbers, f"{key}_null", metric.percent) for m in shown
        ]
    assert view.locator(".verdict p").all_inner_texts() == [m.numbers["verdict"] for m in shown]
    drawn = " ".join(view.locator("figure svg text").all_text_contents())
    assert all(f"ECE {100 * m.numbers['ece']:.2f} %" in drawn for m in shown)
    assert json.loads(
        view.locator("#rows").inner_text()
        or view.evaluate("document.getElementById('rows').textContent")
    ) == [m.row.content for m in shown]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("many", [False, True])
def test_readable_in_both_schemes_and_widths(browser, tmp_path, scheme, width, many):
    html, _ = page_of_four(NASTY) if many else page(NASTY, "second")
    view = opened(
        browser, html, tmp_path, color_scheme=scheme, viewport={"width": width, "height": 800}
    )
    ink, paper = (
        view.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
        for where, what in ((".card", "color"), (".card", "backgroundColor"))
    )
    brightness = [
        sum(int(n) for n in re.findall(r"\d+", colour)[:3]) / 765 for colour in (ink, paper)
    ]
    assert abs(brightness[0] - brightness[1]) > 0.6
    assert (brightness[1] > 0.5) == (scheme == "light")
    title = view.evaluate(
        "getComputedStyle([...document.querySelectorAll('figure svg text')]"
        ".find(t => t.textContent.startsWith('ECE'))).fill"
    )
    assert title == ink  # the figure follows the scheme
    # the page itself does not scroll sideways
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    view.locator("summary").first.click()
    assert view.locator("details").first.get_attribute("open") is not None


def test_prints_dark_on_white_and_whole(browser, tmp_path):
    """Also from a dark screen; the table does not run off the paper."""
    html, _ = page("a model with quite a long name", "second")
    # A4 less its margins
    view = opened(
        browser, html, tmp_path, color_scheme="dark", viewport={"width": 718, "height": 1000}
    )
    view.emulate_media(media="print")
    assert (
        view.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    assert view.evaluate("document.querySelector('table').scrollWidth") <= 718
