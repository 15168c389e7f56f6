// Bundles the unit tests and runs them with Node's own test runner.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const out = mkdtempSync(join(tmpdir(), "fairlane-frontend-"));
try {
  const entryPoints = readdirSync("test").filter((name) => name.endsWith(".test.ts")).map((name) => join("test", name));
  await build({ entryPoints, bundle: true, platform: "node", format: "esm", outdir: out, outExtension: { ".js": ".mjs" } });
  process.exitCode = spawnSync(process.execPath, ["--test", "--test-reporter=dot", out], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
