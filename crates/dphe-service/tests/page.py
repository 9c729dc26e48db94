"""Watches a task in Chromium, as a person would, and says what was seen. Called by page.rs.

    page.py ADDRESS TOKEN DIRECTORY     screenshots are put into DIRECTORY

Lines on standard input say what has happened meanwhile; lines on standard output say what the page shows.
"""
import json
import pathlib
import shutil
import sys
import time

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

address, token, directory = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
directory.mkdir(parents=True, exist_ok=True)

options = webdriver.ChromeOptions()
options.binary_location = shutil.which("chromium")
for option in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900"]:
    options.add_argument(option)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def say(**found):
    print(json.dumps(found), flush=True)


def wait(what, condition, seconds=60):
    WebDriverWait(browser, seconds, poll_frequency=0.1).until(lambda _: condition(), what)


def text(part):
    return browser.find_element(By.ID, part).text


def rows():
    return browser.execute_script("return document.querySelectorAll('#rounds tbody tr').length")


def shot(name):
    height = browser.execute_script("return document.documentElement.scrollHeight")
    size = browser.execute_script("return [innerWidth, devicePixelRatio]")
    device = {"width": size[0], "height": height, "deviceScaleFactor": size[1], "mobile": size[0] < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    browser.save_screenshot(str(directory / f"{name}.png"))
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**device, "height": 900})


try:
    # a stranger, a wrong token, and the right one, by keyboard alone
    browser.get(address)
    stranger = "dashboard.token" in browser.page_source and not browser.find_elements(By.ID, "rounds")
    browser.switch_to.active_element.send_keys("wrong0wrong0wrong0" + Keys.ENTER)
    wait("a refusal", lambda: "not the token" in browser.page_source)
    shot("login")
    browser.switch_to.active_element.send_keys(token + Keys.ENTER)
    wait("the page", lambda: browser.find_elements(By.ID, "live"))
    wait("live news", lambda: text("live") == "live")
    say(step="login", stranger=stranger, title=browser.title)

    # rounds appear without anybody asking
    marked = "window.untouched = true; return true"
    browser.execute_script(marked)
    seen = []
    while len(seen) < 3:
        count = rows()
        if count and (not seen or count > seen[-1]):
            seen.append(count)
        time.sleep(0.05)
    curves = browser.execute_script(
        "return [...document.querySelectorAll('#plots figure')].map(f => [f.querySelector('figcaption').textContent,"
        " f.querySelectorAll('circle').length])"
    )
    untouched = browser.execute_script("return window.untouched === true")
    say(step="live", seen=seen, curves=curves, untouched=untouched, users=text("people"), now=text("now"))
    shot("light")

    sys.stdin.readline()
    wait("the failed round", lambda: "aborted" in text("rounds"), 90)
    say(step="failed", problems=text("problems"))
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    shot("dark")

    # a telephone: nothing is wider than the window
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True})
    widths = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    shot("phone")
    say(step="phone", widths=widths)

    # the keyboard reaches what can be scrolled, and a scrolled table stays where it is when news come
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = []
    for _ in range(6):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.execute_script("const e = document.activeElement; return e.id || e.className"))
    say(step="keyboard", reached=reached)

    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    # the refused token is a refusal by design
    say(step="end", errors=[error for error in errors if "401" not in error])
finally:
    browser.quit()
