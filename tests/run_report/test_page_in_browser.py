# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium, as a phone and as a desktop show it."""

import json
import os
import shutil

import pytest
from made_up_runs import multiply, write_course, write_model, write_rates

from tvm_droplet_ms.cli.report.page import write_report
from tvm_droplet_ms.display.tables import shown_share

pytest.importorskip("selenium", reason="Selenium drives the browser: pip install selenium")

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="there is no Chromium with its driver: Debian's packages chromium and chromium-driver",
)

PHONE, DESKTOP = 400, 1300


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = Options()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tuned, tmp_path_factory):
    """The page of a kernel, that of many tasks with long names, and those of two models."""
    folder = tmp_path_factory.mktemp("pages")
    many = multiply(tuned.work_dir, folder / f"logs_{'long' * 20}", tasks=12, trials=20)
    for name, work_dir in (("one", tuned.work_dir), ("many", many)):
        write_report(work_dir, folder / f"{name}.html")
    write_report(write_rates(write_model(folder / "net")), folder / "model.html")
    write_report(write_course(write_model(folder / "run")), folder / "course.html")
    return folder


def open_page(browser, path, width, opened=True):
    """Open a page, and all that is folded on it; returns what the browser asked for."""
    # The window of a browser without a screen is never narrower than 500.
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get_log("performance"), browser.get_log("browser")
    browser.get(path.as_uri())
    if opened:
        browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    messages = [json.loads(row["message"])["message"] for row in browser.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def texts(browser, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())"
    return browser.execute_script(script, selector)


def microseconds(value):
    return format(value, ".4g" if value < 10_000 else ".0f")


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", ["one", "many", "model", "course"])
def test_nothing_is_asked_for_and_nothing_is_cut_off(browser, pages, name, width):
    asked = open_page(browser, pages / f"{name}.html", width)
    assert [url for url in asked if not url.startswith("data:")] == [
        (pages / f"{name}.html").as_uri()
    ]
    assert browser.get_log("browser") == []
    assert browser.execute_script("return innerWidth") == width
    scroll, client = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert scroll <= client
    # The text of a curve is within its picture.
    outside = browser.execute_script(
        "return [...document.querySelectorAll('svg text')].filter(e => {"
        "const [a, b] = [e, e.closest('svg')].map(x => x.getBoundingClientRect());"
        "return a.left < b.left || a.right > b.right}).map(e => e.textContent)"
    )
    assert outside == []
    # Tables need no scrolling of their own either; a schedule's lines may.
    wider = browser.execute_script(
        "return [...document.querySelectorAll('div.wide, p, h1, h2, figure, summary, dl')]"
        ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
    )
    assert wider == []


@pytest.mark.parametrize("name", ["one", "many"])
def test_the_numbers_are_those_of_the_json(browser, pages, name):
    open_page(browser, pages / f"{name}.html", DESKTOP)
    numbers = json.loads((pages / f"{name}.json").read_text())
    assert texts(browser, "#trials") == [str(numbers["trials"])]
    assert texts(browser, "#failures") == [str(numbers["failures"])]
    for task in numbers["tasks"]:
        expected = [
            ", ".join(task["arguments"]),
            str(task["trials"]),
            str(task["failures"]),
            microseconds(task["first_us"]),
            microseconds(task["best_us"]),
            str(task["last_gain"]),
            format(task["gflops"], ".4g"),
            *([shown_share(task["share_of_peak"])] if task["share_of_peak"] else []),
        ]
        section = f"#kernel-{task['workload']}"
        assert texts(browser, f"{section} dd") == expected
        assert texts(browser, f"{section} .shape") == [task["shape"]]
        assert texts(browser, f"{section} .worths td") == [
            text
            for worth in task["worths"]
            for text in (
                worth["decision"],
                *(str(worth[name]) for name in ("sketch", "groups", "trials")),
                *(format(worth[name], ".2f") for name in ("median_ratio", "largest_ratio")),
            )
        ]
        assert texts(browser, f"{section} .schedule") == [task["schedule"].strip()]
        best = task["best_so_far_us"][-1]
        at_axis = f"{best:.0f}" if best >= 100.0 else f"{best:.3g}"
        assert at_axis in texts(browser, f"{section} svg text")
    assert len(texts(browser, ".kernel")) == len(numbers["tasks"])
    # Eight trials need not differ in one decision only.
    assert name == "one" or any(task["worths"] for task in numbers["tasks"])


def test_what_was_handed_over_is_shown(browser, pages, tuned):
    open_page(browser, pages / "one.html", PHONE)
    times = (tuned.time.secs, tuned.time.low, tuned.time.high, tuned.untuned.secs)
    places = ("#median", "#low", "#high", "#untuned")
    assert [texts(browser, place) for place in places] == [[microseconds(1e6 * s)] for s in times]
    assert texts(browser, "#schedule pre") == [tuned.trace.strip()]
    assert "8 trials (ended by trials): product" in texts(browser, "#result")[0]
    assert os.fspath(tuned.work_dir) in texts(browser, "h1")[0]


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_a_model_shows_where_its_time_goes(browser, pages, width):
    open_page(browser, pages / "model.html", width, opened=False)
    assert texts(browser, "h1") == ["net.onnx"]
    assert [texts(browser, f".{name}") for name in ("before", "after")] == [["1.5"], ["1"]]
    # The slowest kernel is named, comes first, and has the longest bar.
    assert texts(browser, ".slowest") == ["16x8 * 8x8"]
    assert texts(browser, "summary .shape") == ["16x8 * 8x8", "8x8 * 8x8", ""]
    assert texts(browser, "summary .number") == [
        *("600", "60%", "30%", "900"),
        *("300", "30%", "50%", "250"),
        *("100", "10%", "10%", ""),
    ]
    # Widths of the parts of the bars: 900 us fill a row, of which 300 were gained.
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.kernel .bar')].map(bar => Object.fromEntries("
        "[...bar.children].map(part => [part.className,"
        " part.getBoundingClientRect().width / bar.getBoundingClientRect().width])))"
    )
    assert [{name: round(900 * each) for name, each in bar.items()} for bar in widths] == [
        {"least": 180, "above": 420, "gained": 300},
        {"least": 150, "above": 150},
        {"least": 10, "above": 90},
    ]
    assert "T.int64" not in texts(browser, "body")[0]
    assert "2.00 times as fast as ONNX Runtime" in texts(browser, "body")[0]


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_a_click_on_a_kernel_shows_its_schedule(browser, pages, width):
    open_page(browser, pages / "model.html", width, opened=False)
    first, second, _ = browser.find_elements(By.CLASS_NAME, "kernel")
    schedule = second.find_element(By.CLASS_NAME, "schedule")
    assert not schedule.is_displayed()
    second.find_element(By.TAG_NAME, "summary").click()
    assert schedule.is_displayed() and schedule.text == "# of 8"
    assert not first.find_element(By.CLASS_NAME, "schedule").is_displayed()


@pytest.mark.parametrize("name", ["one", "model"])
def test_it_is_light_or_dark_as_the_reader_wants_it(browser, pages, name):
    lightness = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        open_page(browser, pages / f"{name}.html", DESKTOP)
        lightness[scheme] = browser.execute_script(
            "const light = color => color.match(/[0-9]+/g).slice(0, 3).map(Number).reduce("
            "(a, b) => a + b) / 765, of = e => getComputedStyle(e);"
            "return [light(of(document.body).backgroundColor), light(of(document.body).color),"
            " light(of(document.querySelector('svg text')).fill)]"
        )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    (light, *dark_inks), (dark, *light_inks) = lightness["light"], lightness["dark"]
    assert light > 0.9 and max(dark_inks) < 0.3
    assert dark < 0.2 and min(light_inks) > 0.7


def test_what_is_unfolded_stays_so_when_a_followed_page_loads_again(browser, tuned, tmp_path):
    page = tmp_path / "followed.html"
    write_report(tuned.work_dir, page, 4)
    open_page(browser, page, 1300, opened=False)
    is_open = "return document.getElementById('schedule').open"
    assert not browser.execute_script(is_open)
    browser.execute_script("window.isFirst = true")
    browser.find_element(By.CSS_SELECTOR, "#schedule > summary").click()
    wait = WebDriverWait(browser, 60, ignored_exceptions=(WebDriverException,))
    wait.until(lambda page: not page.execute_script("return window.isFirst"))
    wait.until(lambda page: page.execute_script(is_open))
