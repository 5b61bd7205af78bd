// Bundles the page into the package: one script, one style sheet, one document. Beside it stand script and style sheet of
// the page that plays a log without a server (`arranger export --html`).
import { copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "arranger", "web", "static");
// What the page may weigh, compressed; it is also in every export.
const LIMIT_BYTES = 100_000;

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { console: "src/main.tsx", replay: "src/replay.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "eof",
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) copyFileSync(join(here, "src", name), join(out, name));
const bytes = ["index.html", "console.js", "console.css"]
  .map((name) => gzipSync(readFileSync(join(out, name))).length)
  .reduce((one, other) => one + other);
console.log(`the console: ${bytes} bytes compressed`);
if (bytes > LIMIT_BYTES) throw new Error(`the console has more than ${LIMIT_BYTES} bytes compressed`);
