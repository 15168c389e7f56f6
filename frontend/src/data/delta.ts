/** Applies a delta to a frame. Only the objects on changed paths are copied. */

type Tree = { [key: string]: unknown };

export function applied<T extends object>(frame: T, set: Record<string, unknown>, gone: string[]): T {
  const copies = new Set<object>();
  const root = copied(frame as unknown as Tree, copies);
  for (const path of gone) change(root, keys(path), undefined, copies);
  for (const [path, value] of Object.entries(set)) change(root, keys(path), value, copies);
  return root as unknown as T;
}

function change(root: Tree, path: string[], value: unknown, copies: Set<object>): void {
  const last = path.pop();
  if (last === undefined) return;
  let node = root;
  for (const key of path) {
    const child = own(node, key);
    const next = isTree(child) ? copied(child, copies) : copied({}, copies);
    define(node, key, next);
    node = next;
  }
  if (value === undefined) delete node[last];
  else define(node, last, value);
}

function copied(node: Tree, copies: Set<object>): Tree {
  if (copies.has(node)) return node;
  const copy = { ...node };
  copies.add(copy);
  return copy;
}

/** A service may be called `__proto__`: it must become a plain key. */
function define(node: Tree, key: string, value: unknown): void {
  if (key === "__proto__") Object.defineProperty(node, key, { value, writable: true, enumerable: true, configurable: true });
  else node[key] = value;
}

function own(node: Tree, key: string): unknown {
  return Object.hasOwn(node, key) ? node[key] : undefined;
}

function isTree(value: unknown): value is Tree {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A key with a slash is written `~1`, one with a tilde `~0` (as in JSON Pointer). */
function keys(path: string): string[] {
  return path.split("/").map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}
