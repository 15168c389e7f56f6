import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { applied } from "../src/data/delta";

test("a delta sets and removes by path, and leaves the old frame as it was", () => {
  const before = { at: 1, services: { a: { running: 1, next: [1] }, b: { running: 2, next: [] } } };
  const after = applied(before, { at: 2, "services/a/running": 3, "services/c/running": 1 }, ["services/b"]);
  deepEqual(after, { at: 2, services: { a: { running: 3, next: [1] }, c: { running: 1 } } });
  deepEqual(before, { at: 1, services: { a: { running: 1, next: [1] }, b: { running: 2, next: [] } } });
});

test("what did not change is the same object", () => {
  const before = { services: { a: { running: 1 }, b: { running: 2 } } };
  const after = applied(before, { "services/a/running": 3 }, []);
  equal(after.services.b, before.services.b);
  equal(after.services.a === before.services.a, false);
});

test("a key may contain a slash or a tilde", () => {
  deepEqual(applied({ services: {} }, { "services/a~1b~0c/running": 1 }, []), { services: { "a/b~c": { running: 1 } } });
});

test("a key called __proto__ changes no prototype", () => {
  const after = applied({ services: {} } as { services: Record<string, unknown> }, { "services/__proto__/polluted": true }, []);
  equal(({} as Record<string, unknown>)["polluted"], undefined);
  deepEqual(Object.keys(after.services), ["__proto__"]);
});
