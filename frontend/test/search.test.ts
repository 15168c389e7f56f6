import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { isJobId, parameters, parsedSearch, suggestions, written } from "../src/search";

test("qualifiers become parameters of the API, and a bare word is a user", () => {
  const { filter, unknown } = parsedSearch('status:queued tag:"spring sale" ada colour:red');
  deepEqual(parameters(filter), { status: "queued", tag: "spring sale", user_id: "ada" });
  deepEqual(unknown, ["colour:red"]);
});

test("a search survives being written and read again", () => {
  const text = 'user:ada tag:"spring sale" status:dead';
  equal(written(parsedSearch(text).filter), text);
});

test("suggestions complete the last word", () => {
  deepEqual(suggestions("user:ada sta", { status: ["queued", "dead"] }), ["user:ada status:queued", "user:ada status:dead"]);
  deepEqual(suggestions("tier:h", { tier: ["high", "low"] }), ["tier:high"]);
});

test("a job id is recognised", () => {
  equal(isJobId(" 019a8e2c-7d2a-7c3b-9f10-5a6b7c8d7f41 "), true);
  equal(isJobId("ada"), false);
});
