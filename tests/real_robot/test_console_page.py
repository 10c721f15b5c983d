"""The console's page in a headless Chromium, where Playwright and one are installed (ROBO_RL_CHROMIUM names its file)."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("websockets")
playwright = pytest.importorskip("playwright.sync_api")

from robo_real.console.assembly import RobotConsole  # noqa: E402

DESKTOP, TABLET = {"width": 1280, "height": 800}, {"width": 820, "height": 1180}


@contextmanager
def browser():
    with playwright.sync_playwright() as found:
        file = os.environ.get("ROBO_RL_CHROMIUM") or found.chromium.executable_path
        if not Path(file).exists():
            pytest.skip("there is no Chromium")
        opened = found.chromium.launch(executable_path=file, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def console(serve, unhurried):
    found = RobotConsole(serve(unhurried, cameras=("front",), image_size=64).url)
    thread = found.start()
    yield found
    found.close()
    thread.join(20)


def opened(window, console):
    page = window.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(console.server.url)
    playwright.expect(page.locator("#cameras figcaption")).to_contain_text("pictures/s", timeout=60_000)
    assert page.locator("#cameras img").evaluate("image => image.naturalWidth") == 64
    said(page, "Waiting: nothing moves")
    page.wait_for_selector("#start:enabled")
    return page, errors


def said(page, words):
    playwright.expect(page.locator("#headline")).to_contain_text(words, timeout=60_000)


def test_a_person_takes_over_by_keys_stops_labels_and_comes_back(console):
    with browser() as found:
        page, errors = opened(found.new_context(viewport=DESKTOP), console)
        page.keyboard.press("Enter")
        said(page, "The policy acts")
        page.keyboard.down("Shift")
        page.keyboard.down("w")
        said(page, "You act")
        page.keyboard.press("Space")
        said(page, "Stopped")
        page.keyboard.up("w")
        page.keyboard.up("Shift")
        page.click("#rearm")
        said(page, "Waiting")
        page.keyboard.press("Enter")
        said(page, "The policy acts")
        page.keyboard.press("1")
        playwright.expect(page.locator("#message")).to_have_text("ended: goal", timeout=60_000)
        page.reload()
        page.wait_for_selector("#start:enabled")
        assert errors == []


def test_a_page_that_loses_its_keys_holds_and_stops_instead_of_giving_back(console):
    with browser() as found:
        page, _ = opened(found.new_context(viewport=DESKTOP), console)
        page.keyboard.press("Enter")
        said(page, "The policy acts")
        page.keyboard.down("Shift")
        said(page, "You act")
        page.evaluate("window.dispatchEvent(new Event('blur'))")
        said(page, "Lost you")
        said(page, "Stopped")


def test_on_a_tablet_a_pad_moves_while_it_is_held_and_stop_is_in_sight(console):
    with browser() as found:
        page, errors = opened(found.new_context(viewport=TABLET, has_touch=True), console)
        assert page.evaluate("document.documentElement.scrollWidth") <= TABLET["width"]
        page.tap("#start")
        said(page, "The policy acts")
        pad = page.locator(".pads button").first
        page.mouse.move(*centre(pad))
        page.mouse.down()
        said(page, "You act")
        page.mouse.up()
        box = page.locator("#stop").bounding_box()
        assert box["y"] + box["height"] <= TABLET["height"] and box["height"] >= 60
        page.tap("#stop")
        said(page, "Stopped")
        assert errors == []


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
