// Builds the dashboard into src/evenbeat/web/dashboard, or, with the word "test", runs the unit tests.
//
// The new files are written to a folder beside the old ones and then take their place: a server never finds
// half a page. Names contain a hash of the content, so browsers may keep the files for ever.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const TARGET = path.join(HERE, "..", "src", "evenbeat", "web", "dashboard");

/** The most that a page may load, compressed. */
const LARGEST = 80 * 1024;

const SHARED = { bundle: true, jsx: "automatic", jsxImportSource: "preact", target: "es2022", logLevel: "warning" };

async function buildPage() {
  const result = await build({
    ...SHARED,
    entryPoints: { app: path.join(HERE, "src", "main.tsx") },
    outdir: path.join(HERE, "assets"),
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    write: false,
    metafile: true,
    minify: true,
    // Each page is a file of its own, and charts are: the first page needs a third of all code.
    splitting: true,
    format: "esm",
    legalComments: "none",
  });
  const fresh = `${TARGET}.new-${process.pid}`;
  rmSync(fresh, { recursive: true, force: true });
  mkdirSync(path.join(fresh, "assets"), { recursive: true });
  const sizes = new Map();
  for (const file of result.outputFiles) sizes.set(path.basename(file.path), write(fresh, path.basename(file.path), file.contents));
  const icon = readFileSync(path.join(HERE, "icon.svg"));
  const names = {
    script: found(sizes, /^app-.*\.js$/),
    style: found(sizes, /^app-.*\.css$/),
    icon: `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`,
  };
  write(fresh, names.icon, icon);
  let page = readFileSync(path.join(HERE, "index.html"), "utf8");
  for (const [key, name] of Object.entries(names)) {
    page = page.replaceAll(`{{${key}}}`, `assets/${name}`);
  }
  writeFileSync(path.join(fresh, "index.html"), page);
  const old = `${TARGET}.old-${process.pid}`;
  try {
    renameSync(TARGET, old);
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
  }
  renameSync(fresh, TARGET);
  rmSync(old, { recursive: true, force: true });
  report(result.metafile, names, sizes);
}

/** Say how much a browser loads, and fail if a page needs more than the limit. */
function report(metafile, names, sizes) {
  const outputs = new Map(Object.entries(metafile.outputs).map(([name, output]) => [path.basename(name), output]));
  const pages = [...outputs].filter(([, { entryPoint }]) => entryPoint?.includes("/pages/"));
  const loads = pages.map(([name, { entryPoint }]) => {
    const files = [...loadedWith(outputs, [names.script, name]), names.style];
    return { page: entryPoint.split("/").at(-2), size: files.reduce((sum, file) => sum + sizes.get(file), 0) };
  });
  const largest = loads.reduce((most, each) => (each.size > most.size ? each : most));
  const first = loads.find(({ page }) => page === "now");
  const all = [...sizes.values()].reduce((sum, size) => sum + size, 0);
  console.log(
    `dashboard built, compressed: ${kb(first.size)} for the first page, ${kb(largest.size)} for the largest (${largest.page}), ${kb(all)} in all`,
  );
  if (largest.size > LARGEST) throw new Error(`the page ${largest.page} loads more than ${kb(LARGEST)}`);
}

/** Return the files that are loaded with these: what they import at once, and libraries that they import later. */
function loadedWith(outputs, names) {
  const seen = new Set();
  const wanted = [...names];
  while (wanted.length > 0) {
    const name = wanted.pop();
    if (seen.has(name)) continue;
    seen.add(name);
    for (const each of outputs.get(name).imports) {
      const isPage = outputs.get(path.basename(each.path)).entryPoint?.includes("/pages/") ?? false;
      if (each.kind === "import-statement" || !isPage) wanted.push(path.basename(each.path));
    }
  }
  return seen;
}

function kb(bytes) {
  return `${(bytes / 1024).toFixed(1)} KB`;
}

function found(sizes, pattern) {
  const name = [...sizes.keys()].find((each) => pattern.test(each));
  if (name === undefined) throw new Error(`the build has no file like ${pattern}`);
  return name;
}

/** Write a file, and beside it the compressed one that the server sends. Returns the size of that. */
function write(folder, name, content) {
  const compressed = gzipSync(content, { level: 9 });
  writeFileSync(path.join(folder, "assets", name), content);
  writeFileSync(path.join(folder, "assets", `${name}.gz`), compressed);
  return compressed.length;
}

async function test() {
  const folder = path.join(HERE, "tests");
  const names = readdirSync(folder).filter((name) => name.endsWith(".test.ts") || name.endsWith(".test.tsx"));
  const out = mkdtempSync(path.join(tmpdir(), "evenbeat-ui-tests-"));
  try {
    await build({
      ...SHARED,
      entryPoints: names.map((name) => path.join(folder, name)),
      outdir: out,
      platform: "node",
      format: "esm",
      outExtension: { ".js": ".mjs" },
      loader: { ".css": "empty" },
    });
    const files = readdirSync(out).filter((name) => name.endsWith(".mjs"));
    execFileSync(process.execPath, ["--test", ...files.map((name) => path.join(out, name))], { stdio: "inherit" });
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

await (process.argv[2] === "test" ? test() : buildPage());
