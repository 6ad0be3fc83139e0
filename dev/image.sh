#!/usr/bin/env bash
# The image and compose.yaml, looked at without Docker: no image is built or pulled, and no container is started. What is missing is fetched
# once, into target/tools; exit code 3 says that it cannot be had.
#
#   dev/image.sh context        what the build reads is let through by .dockerignore, and its compiler is the one that Cargo.toml asks for
#   dev/image.sh lint           hadolint on the Dockerfile
#   dev/image.sh compose        compose.yaml: Docker's own check where there is one; files, tags, what waits for what
#   dev/image.sh notices        the notices of all crates that the image and a release have beside the binary
#   dev/image.sh relay BINARY   `oncebox validate` on dev/compose with the variables that compose.yaml gives; its commands and their flags
#   dev/image.sh tree BINARY    the image's files, put together as the Dockerfile does it: what is linked, and whether it starts in there
#   dev/image.sh all [BINARY]   everything
set -uo pipefail
cd "$(dirname "$0")/.."
tools=target/tools/hadolint

say() { printf 'image: %s\n' "$*" >&2; }

give_up() {
  say "$*"
  exit 3
}

fail() {
  say "$*"
  exit 1
}

tool() { dev/tools.sh hadolint || exit $?; }

context() {
  command -v python3 >/dev/null || give_up "no python3"
  python3 - <<'PYTHON'
import pathlib, re, sys

let_through = [line[1:] for line in pathlib.Path(".dockerignore").read_text().splitlines() if line.startswith("!")]
cargo = pathlib.Path("Cargo.toml").read_text()
read = set(re.findall(r'^path = "(.*)"', cargo, re.M)) | {"Cargo.toml", "Cargo.lock", "LICENSE"}
read |= {f"{member}/Cargo.toml" for member in re.findall(r'"(.*?)"', re.search(r"^members = \[(.*)\]", cargo, re.M)[1])}
read |= set(re.findall(r"^(?!#).*?\b(dev/[\w-]+\.sh)", pathlib.Path("Dockerfile").read_text(), re.M))
root = pathlib.Path().resolve()
for source in pathlib.Path("src").rglob("*.rs"):
    read.add(str(source))
    for included in re.findall(r'include(?:_str|_bytes)?!\("(.+?)"\)', source.read_text()):
        read.add(str((source.parent / included).resolve().relative_to(root)))
faults = [f"{path} is not there" for path in sorted(read) if not pathlib.Path(path).exists()]
faults += [f"{path} is kept out by .dockerignore" for path in sorted(read)
           if not any(path == one or path.startswith(one + "/") for one in let_through)]
faults += [f".dockerignore lets {path} through, which is not there" for path in let_through if not pathlib.Path(path).exists()]
wanted = re.search(r'^rust-version = "(.*)"', cargo, re.M)[1]
for path in ("Dockerfile", "compose.yaml"):
    for tag in re.findall(r"\brust:(\S+)", pathlib.Path(path).read_text()):
        if not tag.startswith(wanted + "-"):
            faults.append(f"{path}: rust:{tag}, and Cargo.toml asks for {wanted}")
if faults:
    sys.exit("\n".join(faults))
print(f"context: {len(read)} files that the build reads")
PYTHON
}

lint() {
  tool
  "$tools/bin/hadolint" --no-color --failure-threshold style Dockerfile || fail "hadolint refuses the Dockerfile"
}

compose() {
  tool
  if docker compose version >/dev/null 2>&1; then
    docker compose --profile watch config --quiet || fail "Docker refuses compose.yaml"
  else
    say "this machine has no docker compose, whose own check of compose.yaml is left out"
  fi
  looked_at
}

relay() {
  [ -x "${1:?which binary?}" ] || give_up "there is no $1"
  tool
  looked_at "$1"
}

looked_at() { # [binary]
  "$tools/bin/python" - "$@" <<'PYTHON'
import pathlib, re, subprocess, sys

import yaml

binary = sys.argv[1] if len(sys.argv) > 1 else None
faults = []


class Loader(yaml.SafeLoader):
    """Refuses a key that stands twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            sys.exit(f"compose.yaml: a key stands twice {node.start_mark}")
        return super().construct_mapping(node, deep)


def mounts(service):
    """From where, to where."""
    return [volume.split(":")[:2] for volume in service.get("volumes", [])]


def look(name, service):
    image = service["image"]
    if image not in built:
        tag = re.fullmatch(r"[a-z0-9/._-]+:([\w.-]+)", image)
        if not tag or tag[1] == "latest":
            faults.append(f"{name}: the image {image} has no tag that stays")
    for source, _ in mounts(service):
        # Docker would make a folder of a file that is not there.
        if source.startswith(".") and not pathlib.Path(source).exists():
            faults.append(f"{name}: there is no {source}")
        if not source.startswith((".", "/")) and source not in whole.get("volumes", {}):
            faults.append(f"{name}: there is no volume {source}")
    waits = service.get("depends_on", {})
    for other, how in (waits if isinstance(waits, dict) else {one: {} for one in waits}).items():
        if other not in services:
            faults.append(f"{name}: waits for {other}, which is not there")
        elif how.get("condition") == "service_healthy" and "healthcheck" not in services[other]:
            faults.append(f"{name}: waits for the health of {other}, which nobody asks for")
        elif not set(services[other].get("profiles", service.get("profiles", []))) <= set(service.get("profiles", [])):
            faults.append(f"{name}: waits for {other}, which is of another profile")


def oncebox(name, service):
    """The command exists, and the configuration is accepted with the variables that the service gets."""
    words = service["command"].split()
    helped = subprocess.run([binary, words[0], "--help"], capture_output=True, text=True)
    if helped.returncode != 0:
        faults.append(f"{name}: oncebox has no verb {words[0]}")
        return
    known = set(re.findall(r"--[a-z-]+", helped.stdout))
    faults.extend(f"{name}: oncebox {words[0]} has no {word}" for word in words if word.startswith("--") and word not in known)
    if "--config" in words:
        inside = words[words.index("--config") + 1]
        here = [source for source, target in mounts(service) if target == inside]
        if not here:
            faults.append(f"{name}: nothing is mounted at {inside}")
            return
        said = subprocess.run([binary, "validate", "--config", here[0]], env=service["environment"], capture_output=True, text=True)
        if said.returncode != 0:
            faults.append(f"{name}: {said.stdout}{said.stderr}")
        elif "0 warnings" not in said.stdout:
            faults.append(f"{name}: {said.stdout}")


whole = yaml.load(pathlib.Path("compose.yaml").read_text(), Loader)
services = whole["services"]
built = {service["image"] for service in services.values() if "build" in service}
ran = 0
for name, service in services.items():
    look(name, service)
    if binary and service["image"] in built:
        oncebox(name, service)
        ran += 1
if faults:
    sys.exit("\n".join(f"compose.yaml: {fault}" for fault in faults))
print(f"compose: {len(services)} services" + (f", {ran} of them commands of oncebox" if binary else ""))
PYTHON
}

# glibc and libgcc, and no other library.
linked='^(ld-linux-[a-z0-9-]+\.so\.[0-9]+|lib(c|m|dl|rt|pthread|gcc_s)\.so\.[0-9]+)$'

tree() {
  [ -x "${1:?which binary?}" ] || give_up "there is no $1"
  command -v dpkg >/dev/null && [ -f /etc/ssl/certs/ca-certificates.crt ] || give_up "this is no Debian with ca-certificates, of which the image is made"
  local tree=target/image others fine=0
  rm -rf "$tree"
  dev/image-tree.sh "$1" "$tree" || fine=1
  others=$(find "$tree" -name '*.so*' -printf '%f\n' | grep -vE "$linked")
  rm -rf "$tree"
  [ "$fine" = 0 ] || fail "the image's files cannot be put together"
  [ -z "$others" ] || fail "linked with more than glibc and libgcc: $others"
}

notices() {
  local of
  command -v cargo >/dev/null || give_up "no cargo"
  dev/notices.sh >target/notices || fail "the notices of what the binary is made of cannot be put together"
  for of in openssl-src rdkafka-sys libz-sys zstd-sys libmimalloc-sys tokio; do
    grep -qE "^$of [0-9.]+[^:]*: " target/notices || fail "notices: nothing of $of"
  done
}

everything() {
  context && lint && compose && notices && if [ -n "${1:-}" ]; then relay "$1" && tree "$1"; fi
}

case "${1:-}" in
  context | lint | compose | notices | relay | tree) "$@" ;;
  all) shift && everything "$@" ;;
  *) give_up "which? context, lint, compose, notices, relay, tree or all" ;;
esac
