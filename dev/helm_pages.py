"""YAML in the pages that is no configuration of Oncebox: values of the chart, and objects of other operators. Called by dev/helm.sh.

    values FOLDER    writes each block of values into FOLDER, for helm to render; prints their paths
    manifests        objects are YAML, have what every object has, and fit what Oncebox asks for and what stands beside them
"""

import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "helm/oncebox/README.md", ROOT / "examples/team/README.md"]


def blocks():
    """Each block of YAML with its page and line, as documents."""
    for page in PAGES:
        text = page.read_text()
        for block in re.finditer(r"^```yaml\n(.*?)^```", text, re.M | re.S):
            place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 1}"
            try:
                yield place, block[1], list(yaml.safe_load_all(block[1]))
            except yaml.YAMLError as error:
                sys.exit(f"{place}: {error}")


def values(folder):
    known = set(yaml.safe_load((ROOT / "helm/oncebox/values.yaml").read_text()))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    found = 0
    for place, text, documents in blocks():
        one = documents[0]
        # `config`, or brokers as a list: the configuration itself has neither.
        is_values = isinstance(one, dict) and set(one) <= known and ("config" in one or isinstance(one.get("kafka", {}).get("brokers"), list))
        if is_values:
            found += 1
            path = folder / (re.sub(r"[^a-zA-Z0-9]+", "-", place) + ".yaml")
            path.write_text(text)
            print(path)
    if found < 2:
        sys.exit(f"{found} blocks of values: there were more")


def expect(is_so, text):
    if not is_so:
        sys.exit(f"manifests: {text}")


def manifests():
    objects, config = {}, {}
    for place, _, documents in blocks():
        for document in documents:
            if isinstance(document, dict) and "apiVersion" in document:
                expect({"kind", "metadata", "spec"} <= document.keys() and "name" in document["metadata"], f"{place}: no object")
                objects.setdefault(document["kind"], []).append(document)
            elif isinstance(document, dict) and place.startswith("docs/platforms.md"):
                for key, value in document.items():
                    config.setdefault(key, []).append(value)
    expect({"KafkaTopic", "KafkaUser", "Cluster", "Pooler"} <= objects.keys(), f"there are only {sorted(objects)}")

    # Names that the code asks by, besides the group of each workflow.
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.rs"))
    asked = set(re.findall(r'format!\("\{\}\.(\w+)", \w+(?:\.\w+)*\.group_prefix\)', code))
    expect(asked, "no group but those of workflows is found in the code")
    (topic,), (user,) = objects["KafkaTopic"], objects["KafkaUser"]
    rights = {(acl["resource"]["type"], acl["resource"]["name"]): set(acl["operations"]) for acl in user["spec"]["authorization"]["acls"]}
    wanted = {("topic", topic["metadata"]["name"]): {"Read", "Describe", "DescribeConfigs"}, ("group", "oncebox.orders-to-erp"): {"Read"}}
    wanted |= {("group", f"oncebox.{name}"): {"Describe"} for name in asked}
    expect(rights == wanted, f"the user's rights are {rights}, and Oncebox asks for {wanted}")

    # The blocks beside them speak of the same cluster, user and servers.
    cluster, namespace = user["metadata"]["labels"]["strimzi.io/cluster"], user["metadata"]["namespace"]
    bootstrap = f"{cluster}-kafka-bootstrap.{namespace}.svc:9093"
    values = next(kafka for kafka in config["kafka"] if "sasl" in kafka)
    plain = next(kafka for kafka in config["kafka"] if "properties" in kafka)
    mechanism = user["spec"]["authentication"]["type"].upper()
    expect(values["brokers"] == [bootstrap] and plain["brokers"] == bootstrap, f"the brokers are {bootstrap}")
    expect(values["sasl"]["mechanism"] == plain["properties"]["sasl.mechanism"] == mechanism, f"the mechanism is {mechanism}")
    name = user["metadata"]["name"]
    expect(values["sasl"]["username"] == plain["properties"]["sasl.username"] == name, f"the user is {name}")
    expect(values["tls"]["existingCaSecret"] == f"{cluster}-cluster-ca-cert", "the CA's Secret has another name")

    (server,), (pooler,) = objects["Cluster"], objects["Pooler"]
    database, space = server["metadata"]["name"], server["metadata"]["namespace"]
    through = f"{pooler['metadata']['name']}.{space}.svc"
    expect(pooler["spec"]["cluster"]["name"] == database and pooler["spec"]["type"] == "rw", "the pooler is before something else")
    expect(pooler["spec"]["pgbouncer"]["poolMode"] == "transaction", "the pool mode is another")
    expect(through in server["spec"]["certificates"]["serverAltDNSNames"], f"no certificate is for {through}")
    (postgres,) = config["postgres"]
    expect(f"@{through}:5432/" in postgres["url"], f"the pooler is {through}")
    expect(f"@{database}-rw.{space}.svc:5432/" in postgres["directUrl"], f"the server is {database}-rw.{space}.svc")
    print(f"pages: {sum(len(found) for found in objects.values())} objects of other operators, groups {', '.join(sorted(asked))}")


if __name__ == "__main__":
    {"values": values, "manifests": manifests}[sys.argv[1]](*sys.argv[2:])
