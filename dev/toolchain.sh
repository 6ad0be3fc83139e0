#!/usr/bin/env bash
# What a build needs beside Rust: a C compiler, make and perl, for librdkafka and OpenSSL. Installed if missing.
set -euo pipefail
missing=()
for tool in cc make perl; do command -v "$tool" >/dev/null || missing+=("$tool"); done
command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or newer" >&2; exit 1; }
if [ ${#missing[@]} -gt 0 ]; then
  echo "toolchain: missing ${missing[*]}; installing Debian package(s): build-essential perl" >&2
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends build-essential perl
fi
