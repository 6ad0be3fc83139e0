#!/usr/bin/env bash
# What the dependencies may be: deny.toml says. Builds cargo-deny into target/tools, once. Known weaknesses are not looked for: their list
# is no package of any registry.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! [ -x target/tools/bin/cargo-deny ]; then
  echo "deny: building cargo-deny into target/tools (once, some minutes)" >&2
  cargo install --quiet --locked --root target/tools cargo-deny
fi
target/tools/bin/cargo-deny --offline --workspace check licenses bans sources
