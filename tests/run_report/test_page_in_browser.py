# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium, as a phone and as a desktop show it."""

import json
import os
import shutil

import pytest
from made_up_runs import multiply

from tvm_droplet_ms.cli.report.page import write_report
from tvm_droplet_ms.display.tables import shown_share

pytest.importorskip("selenium", reason="Selenium drives the browser: pip install selenium")

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="there is no Chromium with its driver: Debian's packages chromium and chromium-driver",
)

PHONE, DESKTOP = 390, 1280


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
    """The page of a kernel, and that of many tasks with long names."""
    folder = tmp_path_factory.mktemp("pages")
    many = multiply(tuned.work_dir, folder / f"logs_{'long' * 20}", tasks=12, trials=20)
    for name, work_dir in (("one", tuned.work_dir), ("many", many)):
        write_report(work_dir, folder / f"{name}.html")
    return folder


def open_page(browser, path, width):
    """Open a page and all that is folded on it; returns what the browser asked for."""
    # The window of a browser without a screen is never narrower than 500.
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get_log("performance"), browser.get_log("browser")
    browser.get(path.as_uri())
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
    return "-" if value is None else shown(value, ".4g" if value < 10_000 else ".0f")


def shown(value, form=".4g"):
    return "-" if value is None else format(value, form)


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", ["one", "many"])
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
        "return [...document.querySelectorAll('div.wide, p, h1, h2, figure')]"
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
            shown(task["last_gain"], "d"),
            shown(task["gflops"]),
            *([shown_share(task["share_of_peak"])] if task["share_of_peak"] else []),
        ]
        row = f"#kernels tr[data-kernel='{task['workload']}'] td"
        assert texts(browser, row)[1:] == expected
        section = f"#kernel-{task['workload']}"
        assert texts(browser, f"{section} .worths td") == [
            text
            for worth in task["worths"]
            for text in (
                worth["decision"],
                *(str(worth[name]) for name in ("sketch", "groups", "trials")),
                *(shown(worth[name], ".2f") for name in ("median_ratio", "largest_ratio")),
            )
        ]
        assert texts(browser, f"{section} pre") == [task["schedule"].strip()]
        best = task["best_so_far_us"][-1]
        at_axis = f"{best:.0f}" if best >= 100.0 else f"{best:.3g}"
        assert at_axis in texts(browser, f"{section} svg text")
    assert len(texts(browser, "#kernels tbody tr")) == len(numbers["tasks"])
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
