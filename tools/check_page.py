#!/usr/bin/env python3
"""Opens the page of `stof explain --html` in headless Chromium: pictures are drawn, nothing is asked of
other files, nothing goes wrong.

usage: tools/check_page.py PROGRAM    (build/cpu-release/cli/stof)
"""
import json
import os
import re
import subprocess
import sys
import tempfile

BROWSER = "chromium-headless-shell"
CONFIG = {
    "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 64,
    "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}
SHAPE = ["--shape", "4x16", "--mask", "window(4,4)", "--device", "cpu", "--threads", "1"]
PICTURES = [
    "timeline of a forward pass",
    "segments of a layer before and after tuning",
    "best pass so far during the search",
]
# Anything that is not inside of the page is refused, which Chromium writes to its log.
POLICY = ("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">")
# Looks at the page when all is there and leaves what it saw in the document.
PROBE = """<script>
addEventListener('load', () => {
  const area = e => { const r = e.getBoundingClientRect(); return r.width * r.height; };
  const inside = (e, box) => {
    const r = e.getBoundingClientRect(), b = box.getBoundingClientRect();
    return r.left >= b.left - 2 && r.right <= b.right + 2 && r.top >= b.top - 2 && r.bottom <= b.bottom + 2;
  };
  const seen = {pictures: {}, images: [], resources: [], tables: []};
  for (const svg of document.querySelectorAll('svg')) {
    const parts = [...svg.querySelectorAll('rect, text, polyline')];
    seen.pictures[svg.getAttribute('aria-label')] = {
      area: area(svg),
      parts: parts.length,
      empty: parts.filter(e => e.tagName === 'polyline' ? !(e.getTotalLength() > 0) : !(area(e) > 0)).length,
      outside: parts.filter(e => !inside(e, svg)).length,
    };
  }
  for (const image of document.images) seen.images.push(image.naturalWidth * image.naturalHeight);
  for (const entry of performance.getEntriesByType('resource'))
    if (!entry.name.startsWith('data:')) seen.resources.push(entry.name);
  for (const table of document.querySelectorAll('table')) seen.tables.push(table.rows.length);
  document.body.dataset.seen = JSON.stringify(seen);
});
</script>"""


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    if done.returncode != 0:
        sys.exit(f"check_page: {command[0]} {command[1]} failed:\n{done.stdout}{done.stderr}")
    return done


def make_page(program, folder):
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    environment = dict(os.environ, STOF_CACHE=os.path.join(folder, "cache"))
    page = os.path.join(folder, "page.html")
    run([program, "tune", folder, *SHAPE, "--budget", "3s"], env=environment)
    run([program, "explain", folder, *SHAPE, "--html", page], env=environment)
    with open(page, encoding="utf-8") as file:
        return file.read()


def look_at(text, folder):
    """What the browser saw of a page, and its console."""
    assert text.count("<head>") == 1 and text.count("</body>") == 1
    text = text.replace("<head>", "<head>" + POLICY).replace("</body>", PROBE + "</body>")
    path = os.path.join(folder, "probed.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # which root cannot have
    done = run([BROWSER, "--dump-dom", *sandbox, "--disable-gpu", "--enable-logging=stderr",
                "--virtual-time-budget=5000", f"--user-data-dir={folder}/profile", "file://" + path])
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    return json.loads(found.group(1).replace("&quot;", '"')) if found else None, console


def faults_of(seen, console):
    if seen is None:
        return ["the page was not drawn", *console]
    faults = [f"console: {line}" for line in console]
    faults += [f"asks for {name}" for name in seen["resources"]]
    for name in PICTURES:
        picture = seen["pictures"].get(name)
        if picture is None:
            faults.append(f"picture \"{name}\" is missing")
        elif picture["area"] <= 0 or picture["parts"] == 0 or picture["empty"] or picture["outside"]:
            faults.append(f"picture \"{name}\": {picture}")
    if not seen["images"] or min(seen["images"]) <= 0:
        faults.append(f"the mask's tiles are not drawn: {seen['images']}")
    if len(seen["tables"]) != 2 or min(seen["tables"]) < 3:
        faults.append(f"expected two tables of some rows, got rows {seen['tables']}")
    return faults


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        page = make_page(os.path.abspath(sys.argv[1]), folder)
        faults = faults_of(*look_at(page, folder))
        if faults:
            sys.exit("check_page: " + "\n".join(faults))
        # The check itself must see what it is for.
        for name, spoilt in {
                "an outside file": page.replace("</body>", "<img src=\"https://127.0.0.1:1/x.png\"></body>"),
                "a script's error": page.replace("</body>", "<script>undefined.x</script></body>"),
                "an empty picture": re.sub(r'(<rect [^>]*?)height="[^"]*"', r'\1height="0"', page, count=1),
        }.items():
            if not faults_of(*look_at(spoilt, folder)):
                sys.exit(f"check_page: {name} was not noticed")
    print("check_page: drawn, self-contained, without errors")


if __name__ == "__main__":
    main()
