#!/usr/bin/env python3
"""Makes docs/configuration.md of the JSON Schema of the configuration.

    oncebox schema | dev/config-reference.py > docs/configuration.md
    oncebox schema | dev/config-reference.py --check docs/configuration.md

The schema comes from the structs that the configuration is read with. What stands in the page's tables is in the schema or
nowhere: keys in its order, types and bounds as it has them, meaning and default as its descriptions say them.
"""

import json
import re
import sys

BEFORE = """# Configuration reference

Every key of the configuration, made of `oncebox schema` by [dev/config-reference.py](../dev/config-reference.py): do not edit this page, but
the doc comments in `src/config/raw*.rs`. How the configuration is read, changed and checked is in the
[README](../README.md#configuration); [config/oncebox.yaml](../config/oncebox.yaml) is an example that runs. Editors take the schema itself:
`oncebox schema > oncebox.schema.json`.

- A path names a key inside its block: `tls.mode` is the key `mode` below `tls`. `[]` stands for each entry of a list.
- A duration is `250ms`, `30s`, `5m`, `1h`, `30d` or ISO 8601 (`PT1H`). A size is bytes, or `512KiB`, `1MiB`, `4GiB`. A status is `404`, or a
  class such as `2xx`.
- `${NAME}`, `${NAME:-default}` and `${file:/path}` are filled in inside values. A secret must be such a reference.
- The column *default* has what the schema's descriptions say. Where it is empty the meaning says what holds when the key is left out, or the
  key has to be written.
- Unknown keys and duplicate keys are errors, with their position. A key that a build does not have yet makes `validate` warn
  (`not supported yet`) and `run` leave that workflow out: nothing is ignored.
"""

# Where more is said about a block.
READ_ON = {
    "workflows[].delivery": "More in [guarantees.md](guarantees.md), [idempotency-keys.md](idempotency-keys.md) and [uniqueness.md](uniqueness.md).",
    "workflows[].endpoint": "More in [receivers.md](receivers.md); what secrets and addresses may be, in [security.md](security.md).",
    "postgres": "More in [scaling.md](scaling.md) and [platforms.md](platforms.md).",
    "kafka": "The rights that a workflow needs are in [platforms.md](platforms.md).",
    "egress": "More in [security.md](security.md).",
    "admin": "More in [operate.md](operate.md).",
}

FORMATS = {
    "oncebox-duration": "duration",
    "oncebox-duration-or-never": "duration, or `never`",
    "oncebox-duration-or-empty": "duration",
    "oncebox-size": "size",
    "oncebox-status": "status",
}
PLURAL = {"duration": "durations", "status": "statuses", "text": "texts", "whole number": "whole numbers", "map": "maps"}
DEFAULT = re.compile(r"(?:^|[;.,]\s+)[Dd]efault:?\s+(.+?)(?=;\s|\.(?:\s|$)|$)")


class Schema:
    def __init__(self, root):
        self.root = root

    def resolved(self, part):
        """What a part refers to; and of a part that may be null, the part that is not."""
        while True:
            reference = part.get("$ref")
            if reference:
                part = self.root["$defs"][reference.rsplit("/", 1)[1]]
                continue
            others = [one for one in part.get("anyOf", []) if one.get("type") != "null"]
            if len(others) == 1:
                part = others[0]
                continue
            return part

    def branches(self, part):
        part = self.resolved(part)
        return [one for one in part.get("anyOf", []) + part.get("oneOf", []) if one.get("type") != "null"]

    def object_of(self, part):
        """The object behind a part, where it is one or may be one."""
        part = self.resolved(part)
        if "properties" in part:
            return part
        return next(filter(None, map(self.object_of, self.branches(part))), None)

    def type_of(self, part):
        part = self.resolved(part)
        if "const" in part:
            return f"`{part['const']}`"
        if "enum" in part:
            return ", ".join(f"`{one}`" for one in part["enum"])
        if part.get("format") in FORMATS:
            return FORMATS[part["format"]]
        branches = self.branches(part)
        if branches:
            names = [self.type_of(one) for one in branches]
            if all(name.startswith("`") for name in names):
                return ", ".join(names)
            return ", or ".join(dict.fromkeys(names))
        kinds = part.get("type", [])
        kinds = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
        return " or ".join(self.kind(kind, part) for kind in kinds) or "anything"

    def kind(self, kind, part):
        if kind == "array":
            item = self.type_of(part.get("items", {}))
            return "list of " + (item if item.startswith("`") else PLURAL.get(item, item))
        if kind == "object":
            of = part.get("additionalProperties")
            name = self.type_of(of) if isinstance(of, dict) else ""
            return f"map of ({name})" if ", or " in name else f"map of {name}" if name else "map"
        if kind in ("integer", "number"):
            name = "whole number" if kind == "integer" else "number"
            low, high = part.get("minimum"), part.get("maximum")
            if high is not None:
                return f"{name}, {low} to {high}"
            return f"{name}, from {low}" if low else name
        return {"string": "text", "boolean": "`true`, `false`"}[kind]


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def meaning(description):
    """The description without its default, and the default."""
    text = " ".join(description.split())
    found = DEFAULT.search(text)
    if not found:
        return text, ""
    default, rest = found.group(1), text[found.end():].lstrip("; ").strip()
    before = text[: found.start()].strip()
    # A sentence that the default ended goes on as one of its own.
    rest = rest[1:].strip() if rest.startswith(".") else rest
    before = before if not before or before.endswith(".") else before + "."
    return " ".join(part for part in (before, rest) if part), default


def code(default):
    """A value is set as code; words about a value are not."""
    is_value = not re.search(r"\s", default) or default[0] + default[-1] in ("[]", "{}")
    return f"`{default}`" if default and is_value else default


def row(schema, path, part, is_required):
    text, default = meaning(part.get("description", "") or schema.resolved(part).get("description", ""))
    default = "required" if is_required else code(default)
    return f"| `{path}` | {cell(schema.type_of(part))} | {cell(default)} | {cell(text)} |"


def rows(schema, block, prefix=""):
    """A row for every key of a block, those of the blocks inside it under their paths."""
    for name, part in block["properties"].items():
        path = prefix + name
        yield row(schema, path, part, name in block.get("required", []))
        inner = schema.object_of(part)
        items = schema.resolved(part).get("items")
        if inner:
            yield from rows(schema, inner, path + ".")
        for one in [items] if items else [one.get("items") for one in schema.branches(part)]:
            of_list = schema.object_of(one) if one else None
            if of_list:
                yield from rows(schema, of_list, path + "[].")


def table(lines):
    return ["| key | type | default | meaning |", "|---|---|---|---|", *lines, ""]


def section(schema, title, part):
    said = [line for line in (cell(part.get("description", "")), READ_ON.get(title, "")) if line]
    return [f"## {title}", "", *([" ".join(said), ""] if said else []), *table(rows(schema, schema.object_of(part)))]


def page(root):
    schema = Schema(root)
    lines = BEFORE.splitlines() + [""]
    loose, blocks = [], []
    for name, part in root["properties"].items():
        is_block = schema.object_of(part) and name != "defaults"
        (blocks if is_block else loose).append((name, part))
    lines += ["## Top level", ""]
    lines += ["Beside the blocks below, which have a section each.", ""]
    lines += table(row(schema, name, part, False) for name, part in loose)
    for name, part in blocks:
        lines += section(schema, name, part)
    workflow = schema.object_of(root["properties"]["workflows"]["items"])
    lines += ["## workflows[]", "", "The keys of a workflow, and of `defaults`, where `id` may not stand.", ""]
    own = {name: part for name, part in workflow["properties"].items() if not is_section(schema, part)}
    lines += table(row(schema, name, part, False) for name, part in own.items())
    for name, part in workflow["properties"].items():
        if is_section(schema, part):
            title = f"workflows[].{name}" + ("[]" if schema.resolved(part).get("items") else "")
            part = schema.resolved(part).get("items", part) | {"description": part.get("description", "")}
            lines += section(schema, title, part)
    return "\n".join(lines).rstrip() + "\n"


def is_section(schema, part):
    items = schema.resolved(part).get("items")
    return bool(schema.object_of(items if items else part))


def main(arguments):
    made = page(json.load(sys.stdin))
    if not arguments:
        sys.stdout.write(made)
        return 0
    if len(arguments) != 2 or arguments[0] != "--check":
        print("usage: oncebox schema | dev/config-reference.py [--check FILE]", file=sys.stderr)
        return 2
    with open(arguments[1], encoding="utf-8") as file:
        there = file.read()
    if there == made:
        return 0
    pairs = zip(there.splitlines() + [""], made.splitlines() + [""])
    differing = next((n for n, (old, new) in enumerate(pairs, 1) if old != new), 1)
    print(
        f"{arguments[1]}:{differing}: is not what the schema makes; "
        f"oncebox schema | dev/config-reference.py > {arguments[1]}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
