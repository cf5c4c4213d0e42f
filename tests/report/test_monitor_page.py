"""The page of a monitor: harmless, the same twice, and right in a browser."""

import json
import re

import numpy as np
import pytest

from maccal.monitoring import Monitor, Settings
from maccal.report.course import prepare_course
from maccal.report.monitor import monitor_page

NASTY = "<script>alert('x')</script> & \"quotes\" $\\alpha$ </script><!--"


def rows(seed, gap=0.0, n=150):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.7, 1, n)
    return np.stack([p, 1 - p], 1), (rng.random(n) > p - gap).astype(int)


@pytest.fixture(scope="module")
def watch():
    settings = Settings(least_accuracy=0.7, reference=Monitor.reference(*rows(0)))
    monitor = Monitor(settings)
    for day in range(1, 10):
        monitor.add(*rows(day, 0.25 if day > 6 else 0.0), time=f"2026-03-0{day}", name=NASTY)
    monitor.add(rows(10)[0], time="2026-03-10")
    return monitor


def test_harmless_and_the_same_twice(watch):
    html = monitor_page(watch, NASTY)
    assert html == monitor_page(watch, NASTY)
    assert "<script>alert" not in html
    assert html.count("<script") == 1  # the numbers, as data
    plain = html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    plain = plain.replace('xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    assert not re.search(r"https?://|//cdn|@import|url\((?!#)|src=", plain)
    values = json.loads(html.split('id="values">')[1].split("</script>")[0])
    assert values == json.loads(json.dumps(watch.standing().values()))


def test_what_is_drawn_is_what_was_told(watch):
    course = prepare_course(watch)
    assert np.diff(course.time) == pytest.approx(1)  # days
    assert [one.known is None for one in course.periods] == [False] * 9 + [True]
    assert course.periods[-1].expected.rows == 150
    calibration = course.evidence[0]
    assert calibration.name == "calibration"
    assert len(calibration.time) == 9
    first = int((calibration.log10 >= calibration.threshold).argmax())
    assert calibration.fired == calibration.time[first]
    assert first >= 6


def test_many_batches_become_sixty_periods():
    monitor = Monitor()
    for number in range(130):
        monitor.add(*rows(number, n=3), time=f"2026-03-01T{number // 60:02d}:{number % 60:02d}")
    course = prepare_course(monitor)
    assert len(course.periods) == 60
    assert sum(one.rows for one in course.periods) == 390
    assert "The last periods" in monitor_page(monitor, "many")


def test_a_page_without_rows():
    html = monitor_page(Monitor(), "empty")
    assert "No rows to tell" in html
    assert "<figure" not in html


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (1100, "dark"), (390, "light")])
def test_in_a_browser(watch, browser, tmp_path, width, scheme):
    file = tmp_path / "monitor.html"
    file.write_text(monitor_page(watch, "Digits"))
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(file.as_uri())
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    fired = page.locator("[data-alarm=calibration]").get_attribute("data-fired")
    assert fired.startswith("2026-03-0")
    assert "told" in page.locator("[data-alarm=calibration]").get_attribute("class")
    assert page.locator("#periods tbody tr").count() == 10
    assert page.locator("figure svg").count() == 1
    context.close()
