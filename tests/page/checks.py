"""What the tests of pages have in common: a line a check, and what holds of every page."""
import base64
import json
import pathlib

failures = []


def check(what, condition, detail=""):
    print(("ok      " if condition else "FAILED  ") + what + (f": {detail}" if detail and not condition else ""))
    if not condition:
        failures.append(what)


def open_page(browser, page, fragment=""):
    browser.events.clear()
    browser.call("Page.navigate", url="about:blank")  # or another fragment alone would load nothing
    browser.events.clear()
    browser.call("Page.navigate", url=pathlib.Path(page).as_uri() + fragment)
    browser.wait_for("document.readyState === 'complete'")


def screenshot(browser, path, whole=True):
    picture = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
    with open(path, "wb") as file:
        file.write(base64.b64decode(picture["data"]))


def set_screen(browser, width, height, mobile, theme):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])


def check_quiet(browser, page):
    """Nothing was requested but what the page itself holds, nothing thrown, nothing refused by the page's own policy."""
    asked = [event["params"]["request"]["url"] for event in browser.events
             if event["method"] == "Network.requestWillBeSent"]
    others = [url for url in asked if url != pathlib.Path(page).as_uri() and not url.startswith(("data:,", "blob:"))]
    check("the page asks for itself alone", len(asked) > 0 and not others, str(others))
    thrown = [event["params"]["exceptionDetails"] for event in browser.events
              if event["method"] == "Runtime.exceptionThrown"]
    check("nothing is thrown", not thrown, json.dumps(thrown)[:800])
    said = [event["params"]["entry"]["text"] for event in browser.events if event["method"] == "Log.entryAdded"]
    check("the console is empty", not said, str(said))


def check_fits_screen(browser, name):
    overflow = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(f"{name}: nothing is wider than the screen", overflow <= 0, f"{overflow} pixels")
    wide = browser.evaluate(
        "[...document.querySelectorAll('.plot svg')].filter((svg) => svg.getBoundingClientRect().width"
        " > svg.closest('.plot').clientWidth + 1).length")
    check(f"{name}: plots fit their boxes", wide == 0, f"{wide} do not")


def press(browser, key):
    code = {"Tab": 9, "ArrowRight": 39, "End": 35, "Enter": 13}[key]
    for kind in ("keyDown", "keyUp"):
        text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)


def shown_texts(browser):
    """What a reader sees and a screen reader says, but what is typed and what programs print."""
    return browser.evaluate("""(() => {
      const texts = [];
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const inside = walker.currentNode.parentElement;
        if (!inside.closest('script, style, noscript, pre')) texts.push(walker.currentNode.textContent);
      }
      for (const one of document.querySelectorAll('[aria-label]')) texts.push(one.getAttribute('aria-label'));
      return texts;
    })()""")
