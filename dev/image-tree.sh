#!/usr/bin/env bash
# Puts together what the image holds, as a tree of files: the binary, the libraries that it is linked with, and the CAs' certificates. The
# Dockerfile runs this, and so does dev/image.sh, where there is no Docker.
#
#   dev/image-tree.sh BINARY FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${1:?which binary?} tree=${2:?where to?}

install -D --mode 755 "$binary" "$tree/usr/local/bin/oncebox"
# The program that loads libraries is among them.
ldd "$binary" | grep -o '/[^ ]*' | xargs cp --parents --dereference --target-directory "$tree"
cp --parents --dereference /etc/ssl/certs/ca-certificates.crt /etc/nsswitch.conf /etc/os-release "$tree"

# Whose files these are, in which version and under which licence: scanners of images look there.
packages="libc6 libgcc-s1 ca-certificates"
install -D --mode 644 LICENSE "$tree/usr/share/doc/oncebox/LICENSE"
mkdir -p "$tree/var/lib/dpkg"
# shellcheck disable=SC2086
dpkg --status $packages >"$tree/var/lib/dpkg/status"
for package in $packages; do cp --parents --dereference "/usr/share/doc/$package/copyright" "$tree"; done

# What is missing in it shows here, and not in the first container.
if chroot / true 2>/dev/null; then
  chroot --userspec=65532:65532 "$tree" /usr/local/bin/oncebox --version
else
  echo "image-tree: not started in there, because this user may not chroot" >&2
fi
