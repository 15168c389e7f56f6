// Bundles the dashboard into the folder given as the first argument.
import { build } from "esbuild";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const out = process.argv[2] ?? "../src/fairlane/dashboard/dist";
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const { metafile } = await build({
  entryPoints: { app: "src/main.tsx", icon: "src/icon.svg" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  loader: { ".svg": "copy" },
  outdir: join(out, "assets"),
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  metafile: true,
});

const names = Object.keys(metafile.outputs).map((path) => path.split("/").pop());
const asset = (end) => `/assets/${names.find((name) => name.endsWith(end))}`;
const page = readFileSync("index.html", "utf8")
  .replace("/app.js", asset(".js"))
  .replace("/app.css", asset(".css"))
  .replace("/icon.svg", asset(".svg"));
writeFileSync(join(out, "index.html"), page);
