#!/usr/bin/env bash
# The notices of what the binary is made of: each crate with its licence, and every licence, copyright and notice file in its source, those of
# OpenSSL, librdkafka, zlib, zstd and mimalloc among them, which are built in. A text that several have alike stands once.
#
#   dev/notices.sh [FILE ..] >NOTICES     the sources must be there: after `cargo build`. Further files are put behind
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
declare -A text_of crates_with
order=()
list=""

take() { # file, whose
  local hash
  hash=$(sha256sum <"$1")
  [ -n "${text_of[$hash]:-}" ] || order+=("$hash")
  text_of[$hash]=$1
  case ", ${crates_with[$hash]:-}, " in *", $2, "*) ;; *) crates_with[$hash]+="${crates_with[$hash]:+, }$2" ;; esac
}

# What is compiled into it, and what makes it: the C sources come with crates that only build.
tree=$(cargo tree --locked --offline --manifest-path "$root/Cargo.toml" --package oncebox --edges normal,build --prefix none --format '{p}|{l}')
while IFS='|' read -r package licence; do
  read -r name version _ <<<"$package"
  [ "$name" != oncebox ] || continue
  folder=$(compgen -G "$sources/*/$name-${version#v}" | head -n 1) || { echo "notices: there is no source of $name $version" >&2; exit 1; }
  found=0
  while read -r file; do
    take "$file" "$name ${version#v}"
    found=1
  done < <(find "$folder" -type f -size -200k \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'copyright*' -o -iname 'notice*' \
    -o -iname 'unlicense*' \) ! -name '*.rs' ! -name '*.c' ! -name '*.h' | LC_ALL=C sort)
  list+="$name ${version#v}: ${licence:-see its files}$([ "$found" = 1 ] || echo ' (its source has no file of it)')"$'\n'
done < <(sed 's/ (\*)$//' <<<"$tree" | LC_ALL=C sort -u)
[ "${#order[@]}" -gt 20 ] || { echo "notices: only ${#order[@]} texts were found" >&2; exit 1; }
for file in "$@"; do take "$file" "$file"; done

printf 'What Oncebox is made of. Its own licence is Apache-2.0; the file LICENSE has it.\n\n%s' "$list"
for hash in "${order[@]}"; do
  printf '\n%s\n%s\n\n' "$(printf -- '-%.0s' {1..100})" "${crates_with[$hash]}"
  cat "${text_of[$hash]}"
done
