import { equal } from "node:assert/strict";
import { test } from "node:test";
import { duration, ordinal, percent, plural, range, rate, shortId, speed } from "../src/format";

test("a duration has one unit and no false precision", () => {
  const written = [0, 0.42, 4.1, 9.97, 47.3, 98, 120, 3_700, 8_000, 200_000].map(duration);
  equal(written.join(" | "), "0 s | 0.4 s | 4.1 s | 10 s | 47 s | 98 s | 2 min | 62 min | 2.2 h | 2.3 d");
  equal(duration(null), "–");
});

test("a wait is a range", () => {
  equal(range(8.2, 12.4), "8–12 s");
  equal(range(0.2, 0.4), "0.2–0.4 s");
  equal(range(70, 190), "1–3 min");
  equal(range(5, 5), "about 5 s");
  equal(range(0, 0.02), "now");
  equal(range(null, 3), "–");
});

test("a demo's time is multiplied, and its rates are divided", () => {
  speed.value = 100;
  equal(duration(0.3), "30 s");
  equal(rate(290), "2.9/s");
  speed.value = 1;
});

test("rates, shares and counts", () => {
  equal(rate(2.94), "2.9/s");
  equal(rate(0.05), "3/min");
  equal(rate(0), "0/s");
  equal(percent(0.996), "99 %");
  equal(percent(0.29), "29 %");
  equal(percent(1), "100 %");
  equal(plural(1, "job"), "1 job");
  equal(plural(1204, "job"), "1,204 jobs");
  equal([1, 2, 3, 4, 11, 12, 13, 21, 102].map(ordinal).join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd");
  equal(shortId("019a8e2c-7d2a-7c3b-9f10-5a6b7c8d7f41"), "019a8e2c…7f41");
});
