"""The contrast of every text on a page, as WCAG 2 defines it, computed in the browser.

The background of a text is the first opaque colour behind it, with the translucent ones above it
mixed in. Of a gradient, or of a drawing under the text, the colour with the least contrast counts.
Disabled controls are left out, as in WCAG.
"""

from __future__ import annotations

from playwright.sync_api import Page

LOW_CONTRAST = r"""
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", {willReadFrequently: true});
  const known = new Map();
  const read = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, i) => part * a + under[i] * (1 - a));
  const channel = (part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const COLOURS = /(?:rgba?|color|oklch|oklab|lab|hsla?)\([^()]*\)/g;
  const fills = (style) => {
    const stops = style.backgroundImage.match(COLOURS) ?? [];
    return [style.backgroundColor, ...stops]
      .map(read)
      .filter(([, , , a]) => a > 0)
      .map(([r, g, b, a]) => [r, g, b, a * Number(style.opacity)]);
  };
  const backgrounds = (element) => {
    if (element === null) return [[255, 255, 255]];
    const style = getComputedStyle(element);
    const before = getComputedStyle(element, "::before");
    const mix = (layer, below) => layer.flatMap((fill) => below.map((under) => over(fill, under)));
    const below = backgrounds(element.parentElement);
    const own = fills(style).length > 0 ? mix(fills(style), below) : below;
    const isDrawn = before.content !== "none" && before.position === "absolute";
    return isDrawn ? [...own, ...mix(fills(before), own)] : own;
  };
  const isShown = (element) => {
    const box = element.getBoundingClientRect();
    return element.checkVisibility({opacityProperty: true, visibilityProperty: true})
      && box.width > 1 && box.height > 1
      && element.closest(":disabled, .visually-hidden, [hidden]") === null;
  };
  const failures = [];
  const check = (element, text, style, colour) => {
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const needed = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    for (const back of backgrounds(element)) {
      const found = ratio(over(read(colour), back), back);
      if (found < needed) {
        const what = `"${text.slice(0, 40)}" .${element.className}`;
        const pair = `${colour} on ${back.map(Math.round)}`;
        failures.push(`${found.toFixed(2)} < ${needed}: ${what} ${pair}`);
        return;
      }
    }
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim(), element = texts.currentNode.parentElement;
    if (!text || !isShown(element)) continue;
    count += 1;
    check(element, text, getComputedStyle(element), getComputedStyle(element).color);
  }
  for (const field of document.querySelectorAll("input, textarea, select")) {
    if (!isShown(field)) continue;
    const style = getComputedStyle(field);
    check(field, field.value || "field", style, style.color);
    const hint = getComputedStyle(field, "::placeholder").color;
    if (field.placeholder) check(field, field.placeholder, style, hint);
  }
  return {count, failures: [...new Set(failures)]};
}
"""


def low_contrast(page: Page) -> list[str]:
    """The texts with less contrast than WCAG AA asks for."""
    found = page.evaluate(LOW_CONTRAST)
    assert found["count"] > 0, "the page shows no text"
    return list(found["failures"])
