#!/usr/bin/env bash
# Puts the table of values into helm/oncebox/README.md: the comment above a key of values.yaml is its row.
#
#   dev/helm-readme.sh           writes it
#   dev/helm-readme.sh --check   fails when it is not what values.yaml says
set -uo pipefail
cd "$(dirname "$0")/../helm/oncebox"

python3 - "${1:-}" <<'PYTHON'
import pathlib, re, sys

START, END = "<!-- values: made of values.yaml by dev/helm-readme.sh -->", "<!-- end of values -->"
lines, path, comment, faults = [], [], [], []
for number, line in enumerate(pathlib.Path("values.yaml").read_text().splitlines(), 1):
    text = line.strip()
    if text.startswith("# == "):
        lines += ["", f"### {text[5:]}", "", "| value | default | meaning |", "|---|---|---|"]
        comment = []
    elif text.startswith("#"):
        comment.append(text[1:].strip())
    elif not text:
        comment = []
    else:
        key, value = re.fullmatch(r"([A-Za-z0-9]+):(?: (.*))?", text).groups()
        depth = (len(line) - len(line.lstrip())) // 2
        path = path[:depth] + [key]
        if value is not None:
            if not comment:
                faults.append(f"values.yaml:{number}: {'.'.join(path)} has no comment")
            cell = lambda text: text.replace("|", "\\|")
            lines.append(f"| `{'.'.join(path)}` | `{cell(value)}` | {cell(' '.join(comment))} |")
            comment = []

readme = pathlib.Path("README.md")
old = readme.read_text()
before, rest = old.split(START)
new = before + START + "\n" + "\n".join(lines) + "\n\n" + END + rest.split(END)[1]
if faults:
    sys.exit("\n".join(faults))
if sys.argv[1] == "--check":
    sys.exit("README.md of the chart is not what values.yaml says: dev/helm-readme.sh" if new != old else 0)
readme.write_text(new)
PYTHON
