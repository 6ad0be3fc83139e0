"""What the chart renders, looked at as Kubernetes and Oncebox will. Enters: a file of `helm template`. Called by dev/helm.sh.

    check FILE CHART_FILES VERSION ..   against Kubernetes' schemas, and whether the parts fit together; every fault at once
    extract FILE FOLDER                 the configuration into FOLDER/config, made-up secrets beside it, FOLDER/env with the variables
"""

import base64
import json
import os
import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import yaml

CONFIG = "/etc/oncebox"
REFERENCE = re.compile(r"(?<!\$)\$\{([^}]*)\}")


class Loader(yaml.SafeLoader):
    """Refuses a key that stands twice: Kubernetes takes the last one and says nothing."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {str(key) for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.YAMLError(f"twice in one map: {', '.join(sorted(twice))} {node.start_mark}")
        return super().construct_mapping(node, deep)


def load(path):
    return [document for document in yaml.load_all(pathlib.Path(path).read_text(), Loader) if document]


class Rendered:
    def __init__(self, documents):
        self.documents = documents
        self.faults = []

    def fault(self, document, text):
        self.faults.append(f"{document['kind']}/{document['metadata']['name']}: {text}")

    def expect(self, document, is_so, text):
        if not is_so:
            self.fault(document, text)

    def of(self, *kinds):
        return [document for document in self.documents if document["kind"] in kinds]

    def with_pods(self):
        """Everything that makes pods, with their labels and their spec."""
        for document in self.of("Deployment", "Job"):
            template = document["spec"]["template"]
            yield document, template["metadata"]["labels"], template["spec"]
        for document in self.of("Pod"):
            yield document, document["metadata"]["labels"], document["spec"]


def hook(document):
    return document["metadata"].get("annotations", {}).get("helm.sh/hook")


def weight(document):
    return int(document["metadata"]["annotations"].get("helm.sh/hook-weight", 0))


def fits(selector, labels):
    return all(labels.get(name) == value for name, value in selector.items())


def seconds(text):
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def schemas(rendered, versions):
    for document in rendered.documents:
        if document["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                rendered.fault(document, f"{version}: {'.'.join(map(str, error.path))}: {error.message}")
    names = [(document["kind"], document["metadata"]["name"]) for document in rendered.documents]
    for document in rendered.documents:
        name = document["metadata"]["name"]
        rendered.expect(document, re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name), "not a name of 63 characters at most")
        rendered.expect(document, names.count((document["kind"], name)) == 1, "there are two of it")
        rendered.expect(document, document["kind"] != "Secret", "a Secret: the chart only refers to them")


def restricted(rendered):
    """The Pod Security Standard `restricted`, and what we add to it."""
    for document, _, pod in rendered.with_pods():
        context = pod["securityContext"]
        rendered.expect(document, context.get("runAsNonRoot") and context.get("runAsUser", 0) > 0, "may run as root")
        rendered.expect(document, context.get("seccompProfile") == {"type": "RuntimeDefault"}, "no seccomp profile")
        rendered.expect(document, pod.get("automountServiceAccountToken") is False, "has a token for Kubernetes")
        for container in pod["containers"]:
            own = container["securityContext"]
            rendered.expect(document, own.get("allowPrivilegeEscalation") is False, "may gain privileges")
            rendered.expect(document, own.get("readOnlyRootFilesystem") is True, "may write into its image")
            rendered.expect(document, own.get("capabilities") == {"drop": ["ALL"]}, "has capabilities")
            rendered.expect(document, {"requests", "limits"} <= container["resources"].keys(), "no requests or limits")


def selectors(rendered):
    deployments = {deployment["metadata"]["name"]: deployment for deployment in rendered.of("Deployment")}
    for document, labels, pod in rendered.with_pods():
        is_relay = document["kind"] == "Deployment"
        arguments = " ".join(pod["containers"][0]["args"])
        answers = is_relay and ("--roles" not in arguments or "admin" in arguments)
        for chooser in rendered.of("Deployment", "Service", "PodDisruptionBudget", "PodMonitor"):
            selector = chooser["spec"]["selector"].get("matchLabels", chooser["spec"]["selector"])
            wanted = {"Deployment": chooser is document,
                      "Service": is_relay if chooser["spec"].get("clusterIP") == "None" else answers}.get(chooser["kind"], is_relay)
            rendered.expect(chooser, fits(selector, labels) == wanted, f"chooses the pods of {document['metadata']['name']}, or not")
        for policy in rendered.of("NetworkPolicy"):
            rendered.expect(policy, fits(policy["spec"]["podSelector"]["matchLabels"], labels),
                            f"is not for the pods of {document['metadata']['name']}")
    for monitor in rendered.of("ServiceMonitor"):
        services = [s for s in rendered.of("Service") if fits(monitor["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])]
        rendered.expect(monitor, len(services) == 1, "does not choose one Service")
        for name, deployment in deployments.items():
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            rendered.expect(monitor, any(fits(s["spec"]["selector"], labels) for s in services), f"does not see the pods of {name}")
    for scaler in rendered.of("HorizontalPodAutoscaler"):
        scaled = deployments.get(scaler["spec"]["scaleTargetRef"]["name"])
        rendered.expect(scaler, scaled is not None, "scales something else")
        rendered.expect(scaler, scaled is None or "replicas" not in scaled["spec"], "would undo the replicas of what it scales")


def ports(rendered):
    for deployment in rendered.of("Deployment"):
        ports_of(rendered, deployment)


def ports_of(rendered, deployment):
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    config = merged(rendered, deployment["spec"]["template"]["spec"])
    rendered.expect(deployment, config["admin"]["listen"].endswith(f":{named['admin']}"), "listens on another port")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        rendered.expect(deployment, container[probe]["httpGet"]["port"] in named, f"{probe}: no such port")
    for service in rendered.of("Service"):
        rendered.expect(service, all(port["targetPort"] in named for port in service["spec"]["ports"]), "no such port")
    for monitor in rendered.of("ServiceMonitor", "PodMonitor"):
        for endpoint in monitor["spec"].get("endpoints", monitor["spec"].get("podMetricsEndpoints")):
            rendered.expect(monitor, endpoint["port"] in named, "no such port")
    for policy in rendered.of("NetworkPolicy"):
        opened = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
        rendered.expect(policy, opened == list(named.values()), "opens another port")
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    rendered.expect(deployment, grace > seconds(config["shutdownGrace"]), "is killed within its shutdownGrace")


def hooks(rendered):
    """A hook may only need what is there before the release is: what exists anyway, or hooks that come earlier."""
    for document, _, pod in rendered.with_pods():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        rendered.expect(document, mounts == volumes.keys(), f"volumes and mounts differ: {sorted(mounts ^ volumes.keys())}")
        wanted = volumes["config"]["configMap"]["name"]
        found = [m for m in rendered.of("ConfigMap") if m["metadata"]["name"] == wanted]
        rendered.expect(document, len(found) == 1, f"there is no ConfigMap {wanted}")
        if hook(document) and "pre-install" in hook(document):
            accounts = [account["metadata"]["name"] for account in rendered.of("ServiceAccount")]
            rendered.expect(document, pod["serviceAccountName"] not in accounts, "its service account comes after it")
            rendered.expect(document, found and hook(found[0]) == hook(document) and weight(found[0]) < weight(document),
                            f"{wanted} comes after it")
    weights = [weight(job) for job in sorted(rendered.of("Job"), key=lambda job: job["metadata"]["name"], reverse=True)]
    for job in rendered.of("Job"):
        rendered.expect(job, weights == sorted(weights), "migrates before it validates")


def files(rendered, pod):
    wanted = next(volume for volume in pod["volumes"] if volume["name"] == "config")["configMap"]["name"]
    return next(m for m in rendered.of("ConfigMap") if m["metadata"]["name"] == wanted)["data"]


def merged(rendered, pod):
    config = {}
    for text in files(rendered, pod).values():
        for key, value in yaml.load(text, Loader).items():
            config[key] = config[key] + value if key == "workflows" and key in config else value
    return config


def paths(text):
    """Files that a configuration names: by reference, or as certificates."""
    found = {reference[5:] for reference in REFERENCE.findall(text) if reference.startswith("file:")}
    return found | set(re.findall(r"(?<![\w/:.])/(?:etc|run)/[\w./-]+", text))


def references(rendered):
    """Every reference of the configuration is one that the pod can follow."""
    for document, _, pod in rendered.with_pods():
        for container in pod["containers"]:
            variables = [variable["name"] for variable in container["env"]]
            rendered.expect(document, len(variables) == len(set(variables)), "a variable stands twice")
            folders = [mount["mountPath"] for mount in container["volumeMounts"]]
            for name, text in files(rendered, pod).items():
                for reference in REFERENCE.findall(text):
                    known = reference.startswith("file:") or ":-" in reference or reference in variables
                    rendered.expect(document, known, f"{name}: there is no variable {reference}")
                for path in paths(text):
                    mounted = any(path.startswith(folder + "/") for folder in folders)
                    rendered.expect(document, mounted, f"{name}: {path} is not mounted")
            for variable in container["env"]:
                if re.search("PASSWORD|SECRET|TOKEN|URL", variable["name"]):
                    rendered.expect(document, "valueFrom" in variable, f"{variable['name']} is written out")


def observed(rendered, folder):
    for rule in rendered.of("PrometheusRule"):
        own = yaml.load((folder / "alerts.yaml").read_text(), Loader)
        if rule["spec"] == own:
            continue
        # With labels to route by, each expression is in there as it is.
        ours, theirs = ([one for group in spec["groups"] for one in group["rules"]] for spec in (own, rule["spec"]))
        same = [mine["alert"] == their["alert"] and mine["expr"] in their["expr"] and mine | {"expr": ""} == their | {"expr": ""}
                for mine, their in zip(ours, theirs)]
        rendered.expect(rule, len(ours) == len(theirs) and all(same), "is not files/alerts.yaml")
    for board in [m for m in rendered.of("ConfigMap") if m["metadata"]["name"].endswith("-dashboard")]:
        own = json.loads((folder / "dashboard.json").read_text())
        rendered.expect(board, json.loads(board["data"]["oncebox.json"]) == own, "is not files/dashboard.json")


def check(path, folder, *versions):
    rendered = Rendered(load(path))
    schemas(rendered, versions)
    restricted(rendered)
    selectors(rendered)
    ports(rendered)
    hooks(rendered)
    references(rendered)
    observed(rendered, pathlib.Path(folder))
    for fault in rendered.faults:
        print(fault, file=sys.stderr)
    name = pathlib.Path(path).stem
    print(f"{name}: {len(rendered.documents)} objects, Kubernetes {' and '.join(versions)}, {len(rendered.faults)} faults")
    return 1 if rendered.faults else 0


def made_up(path, certificate):
    """Something of the right form for what a file is for."""
    if path.suffix == ".key":
        return certificate.with_suffix(".key").read_text()
    if path.suffix in (".crt", ".pem"):
        return certificate.read_text()
    if "signing" in path.name:
        return "whsec_" + base64.b64encode(os.urandom(32)).decode()
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def extract(path, folder):
    rendered = Rendered(load(path))
    folder = pathlib.Path(folder).resolve()
    pod = rendered.of("Deployment")[0]["spec"]["template"]["spec"]
    (folder / "config").mkdir(parents=True, exist_ok=True)
    for old in (folder / "config").iterdir():
        old.unlink()
    certificate = folder / "made-up.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=made-up", "-keyout",
                    certificate.with_suffix(".key"), "-out", certificate], check=True, capture_output=True)
    for name, text in files(rendered, pod).items():
        for secret in sorted(paths(text), key=len, reverse=True):
            here = folder / secret.lstrip("/")
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_text(made_up(here, certificate))
        # Only whole paths that are read: the slash before keeps those that were put in already.
        text = re.sub(r"(?<![\w/:.])(?=/(?:etc|run)/)|(?<=file:)(?=/)", lambda _: str(folder), text)
        (folder / "config" / name).write_text(text)
    lines = []
    for variable in pod["containers"][0]["env"]:
        # What a password of Postgres may hold, the chart's connection string must bear.
        made = {"DATABASE_PASSWORD": "made-up?@/:#&%= $1"}.get(variable["name"], "made-up")
        if variable["name"].endswith("URL"):
            made = "postgresql://oncebox:made-up@postgres:5432/oncebox"
        lines.append(f"{variable['name']}='{variable.get('value', made)}'")
    (folder / "env").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit({"check": check, "extract": extract}[sys.argv[1]](*sys.argv[2:]))
