"""A headless Chromium. Starting it costs two seconds, so the tests of a module share one."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@asynccontextmanager
async def chromium_browser() -> AsyncGenerator[Browser]:
    """Start a browser. Each test opens its own contexts in it, without cookies, and closes them."""
    if CHROMIUM is None:
        pytest.skip("not run: there is no Chromium")
    async with async_playwright() as playwright:
        # Containers do not allow its sandbox, and it opens only pages of these tests.
        switches = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
        switches += ["--disable-gpu", "--disable-software-rasterizer", "--disable-extensions"]
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=switches)
        yield browser
        await browser.close()
