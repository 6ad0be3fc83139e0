#!/usr/bin/env bash
# The chart, looked at without a cluster. What is missing is fetched once, into target/tools; exit code 3 says that it cannot be had.
#
#   dev/helm.sh tool                        builds helm from its source, by its Go package
#   dev/helm.sh lint                        helm's own checks, and what the chart must refuse
#   dev/helm.sh template NAME               what helm/oncebox/ci/NAME-values.yaml becomes, with the flags of NAME-flags, if there are any
#   dev/helm.sh golden --check | --write    that against the snapshots in helm/oncebox/ci/golden
#   dev/helm.sh check                       that against Kubernetes' schemas, and whether its parts fit together; as a part of a chart too
#   dev/helm.sh pages                       values of the chart and objects of other operators that stand in the pages
#   dev/helm.sh alerts [LABEL]              the rules for Prometheus, with that label of workflows to route by
#   dev/helm.sh extract NAME FOLDER         its configuration into FOLDER/config, with made-up secrets beside it, FOLDER/env for the shell
#   dev/helm.sh validate BINARY [NAME ..]   `oncebox validate` and `oncebox test` on that
#   dev/helm.sh all [BINARY]                everything
set -uo pipefail
cd "$(dirname "$0")/.."
tools=target/tools
chart=helm/oncebox
mkdir -p "$tools"

helm_version=v3.22.0
# The oldest and the newest that the chart is checked for, and the one that templates see.
kubernetes_versions="1.27 1.37"
kubernetes_version=1.33.0

say() { printf 'helm: %s\n' "$*" >&2; }

give_up() {
  say "$*"
  exit 3
}

fail() {
  say "$*"
  exit 1
}

tool() {
  [ -x "$tools/helm" ] && [ "$(cat "$tools/helm.version" 2>/dev/null)" = "$helm_version" ] && return 0
  command -v go >/dev/null || give_up "no helm: there is no Go to build it with"
  say "building helm $helm_version into $tools (once, some minutes)"
  rm -f "$tools/helm"
  GOBIN="$PWD/$tools" CGO_ENABLED=0 nice -n 19 go install "helm.sh/helm/v3/cmd/helm@$helm_version" >"$tools/helm.log" 2>&1 \
    || give_up "no helm: it cannot be fetched or built, $tools/helm.log says why"
  echo "$helm_version" >"$tools/helm.version"
}

# Python with a YAML reader and Kubernetes' schemas.
python() {
  local python=$tools/kubernetes/bin/python
  if ! [ -x "$python" ]; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || give_up "no Python with venv"
    say "fetching Kubernetes' schemas with pip into $tools/kubernetes (once)"
    { python3 -m venv "$tools/kubernetes" \
      && timeout 300 "$tools/kubernetes/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
        kubernetes-validate==1.37.0 PyYAML==6.0.3 jsonschema==4.26.0; } \
      >"$tools/kubernetes.log" 2>&1 || { rm -rf "$tools/kubernetes"; give_up "Kubernetes' schemas cannot be fetched"; }
  fi
  "$python" "$@"
}

helm() { HELM_NO_PLUGINS=1 "$tools/helm" "$@"; }

names() {
  local file
  for file in "$chart"/ci/*-values.yaml; do basename "$file" -values.yaml; done
}

render() { # values file, more flags
  local values=$1
  shift
  helm template oncebox "$chart" --namespace relay --kube-version "$kubernetes_version" --values "$values" "$@"
}

# More flags of a set of values, a line each.
flags() { cat "$chart/ci/$1-flags" 2>/dev/null; }

template() {
  local name=${1:?which? one of: $(names | tr '\n' ' ')} more
  mapfile -t more < <(flags "$name")
  render "$chart/ci/$name-values.yaml" "${more[@]}"
}

# Without the dashboard and the alerts, which `check` compares with their files.
snapshot() {
  template "$1" | awk '
    /^---/ { cut = 0 }
    /^# Source:/ { source = $0 }
    cut { next }
    { print }
    source ~ /dashboard.yaml/ && /^  oncebox.json:/ { print "    (files/dashboard.json)"; cut = 1 }
    source ~ /prometheusrule.yaml/ && /^spec:/ { print "  (files/alerts.yaml)"; cut = 1 }'
}

golden() {
  local name fine=0
  mkdir -p "$chart/ci/golden" "$tools/golden"
  for name in $(names); do
    snapshot "$name" >"$tools/golden/$name.yaml" || fail "$name cannot be rendered"
    case "${1:-}" in
      --write) cp "$tools/golden/$name.yaml" "$chart/ci/golden/$name.yaml" ;;
      --check) diff -u "$chart/ci/golden/$name.yaml" "$tools/golden/$name.yaml" || fine=1 ;;
      *) give_up "golden --check or --write?" ;;
    esac
  done
  [ "$fine" = 0 ] || fail "what is rendered has changed; when that is meant: dev/helm.sh golden --write"
}

# What must not be rendered: a line is flags, and a word of the reason.
refused() {
  cat <<'LIST'
--set admin.existingSecret=|admin.existingSecret
--set-json admin.tokens=[]|minItems
--set-json kafka.brokers=[]|kafka.brokers is empty
--set-json kafka.brokers=["kafka"]|does not match pattern
--set externalDatabase.host=|there is no Postgres
--set kafka.securityProtocol=SASL_SSL|kafka.sasl.username
--set kafka.securityProtocol=TLS|must be one of
--set externalDatabase.existingSecret=,externalDatabase.existingSecretUrlKey=uri|externalDatabase.existingSecret
--set externalDatabase.password=hunter2|not allowed
--set externalDatabase.existingCaSecret=ca,externalDatabase.sslmode=require|sslmode require does not look at it
--set externalDatabase.existingCaSecret=ca,externalDatabase.sslmode=prefer|sslmode prefer does not look at it
--set kafka.tls.existingCaSecret=ca|securityProtocol PLAINTEXT does not use it
--set kafka.tls.existingClientSecret=me,kafka.securityProtocol=SASL_PLAINTEXT,kafka.sasl.username=me,kafka.sasl.existingSecret=me|securityProtocol SASL_PLAINTEXT does not use it
--set kafka.sasl.username=me|securityProtocol PLAINTEXT does not use it
--set kafka.sasl.existingSecret=me,kafka.securityProtocol=SSL|securityProtocol SSL does not use it
--set config.shutdownGrace=5s|config holds
--set config.admin.listen=127.0.0.1:1|config holds
--set shutdownGrace=1h|does not match pattern
--set reload.mode=sometimes|must be one of
--set metrics.monitor.kind=Both|must be one of
--set replicas=3|not allowed
--set-json deployments=[{"name":"reader","roles":["ingest"]}]|none has the role relay
--set-json deployments=[{"name":"all","roles":["everything"]}]|must be one of
--set-json deployments=[{"name":"a","roles":["ingest","relay","admin"]},{"name":"a","roles":["relay"]}]|two are named a
--set extraConfigFiles.orders=text|propertyName
--set-json metrics.rules.routeLabels=["workflow"]|'not' failed
--set-json metrics.rules.routeLabels=["a-team"]|does not match pattern
LIST
}

# The ConfigMaps that pods and hooks name, with these flags.
config_maps() {
  render "$chart/ci/default-values.yaml" "$@" | awk '/configMap:$/ { getline; print $2 }' | sort -u | tr '\n' ' '
}

# Where pods are restarted those that still run must not see a new configuration; where they reload it they must.
config_names() {
  local before=$1 after
  shift
  after=$(config_maps "$@") || fail "the default cannot be rendered with $*"
  case "$after" in *oncebox-config*oncebox-new-config*) ;; *) fail "lint: pods and hooks name $after" ;; esac
  [ "$before" = "$after" ]
}

# Requests that may take longer than a pod waits for them, as the notes of an installation name them.
cut_off() { render "$chart/ci/default-values.yaml" "$@" | sed -n 's/^ *# A request may take longer: //p' | tr '\n' ' '; }

lint() {
  local name more flags word said
  for name in $(names); do
    mapfile -t more < <(flags "$name")
    helm lint "$chart" --strict --quiet --kube-version "$kubernetes_version" --values "$chart/ci/$name-values.yaml" "${more[@]}" \
      || fail "lint: $name"
  done
  while IFS='|' read -r flags word; do
    # The flags hold no spaces but the one between them.
    # shellcheck disable=SC2086
    said=$(render "$chart/ci/default-values.yaml" $flags 2>&1) && fail "lint: not refused: $flags"
    case "$said" in *"$word"*) ;; *) fail "lint: $flags is refused for another reason: $said" ;; esac
  done < <(refused)
  said=$(render "$chart/ci/default-values.yaml" --set-string nameOverride=2026,serviceAccount.name=1e3) || fail "lint: a name that is a number"
  grep -qE '(/name|/instance|[aA]ccountName): [0-9]' <<<"$said" && fail "lint: a name that is a number is not quoted"
  said=$(config_maps)
  config_names "$said" --set replicaCount=7 || fail "lint: the same configuration has another ConfigMap"
  config_names "$said" --set config.workflows[0].id=other && fail "lint: another configuration has the same ConfigMap"
  said=$(config_maps --set reload.mode=reload)
  config_names "$said" --set reload.mode=reload,config.workflows[0].id=other || fail "lint: a reload has another ConfigMap"
  said=$(cut_off --set shutdownGrace=2m,config.defaults.endpoint.timeout=3m \
    --set-string 'extraConfigFiles.a\.yaml=workflows: [{id: slow}\, {id: quick\, endpoint: {timeout: 500ms}}]')
  [ "$said" = "orders-to-erp: 3m slow: 3m " ] || fail "lint: requests that outlast shutdownGrace are not these: $said"
  said=$(cut_off --set-string 'extraConfigFiles.a\.yaml=workflows: [text\, {id: a\, endpoint: }\, {id: b\, endpoint: {timeout: 7}}]' \
    --set config.defaults.endpoint.timeout=9m --set-string 'extraConfigFiles.b\.yaml=defaults: ' --set-string 'extraConfigFiles.c\.yaml=no: [yaml') \
    && [ "$said" = "orders-to-erp: 9m a: 9m " ] || fail "lint: what validate would refuse cannot be rendered: $said"
  said=$(cut_off)
  [ -z "$said" ] || fail "lint: by default requests outlast shutdownGrace: $said"
  dev/helm-readme.sh --check
}

alerts() {
  local labels=()
  [ -z "${1:-}" ] || labels=(--set-json "metrics.rules.routeLabels=[\"$1\"]")
  render "$chart/ci/default-values.yaml" --show-only templates/prometheusrule.yaml --set metrics.rules.enabled=true "${labels[@]}" \
    | sed -n '/^spec:/,$s/^  //p'
}

# A chart that has this one as a part, as platform teams have: with every value set, and turned off.
umbrella() {
  local folder=$tools/umbrella version found
  version=$(awk '$1 == "version:" { print $2 }' "$chart/Chart.yaml")
  rm -rf "$folder" && mkdir -p "$folder/charts" && cp -r "$chart" "$folder/charts/oncebox"
  printf '%s\n' "apiVersion: v2" "name: shop" "version: 1.0.0" "dependencies:" \
    "  - {name: oncebox, version: $version, condition: oncebox.enabled}" >"$folder/Chart.yaml"
  { echo "global: {region: eu-1}" && echo "oncebox:" && echo "  enabled: true" && sed 's/^/  /' "$chart/ci/production-values.yaml"; } \
    >"$folder/values.yaml"
  helm template shop "$folder" --namespace shop --kube-version "$kubernetes_version" >"$tools/umbrella.yaml" \
    || fail "it cannot be a part of another chart"
  # shellcheck disable=SC2086
  python dev/helm_rendered.py check "$tools/umbrella.yaml" "$chart/files" $kubernetes_versions || exit $?
  found=$(helm template shop "$folder" --namespace shop --kube-version "$kubernetes_version" --set oncebox.enabled=false) \
    || fail "a part of another chart, it cannot be turned off"
  case "$found" in *kind:*) fail "a part of another chart and turned off, it is rendered all the same" ;; esac
}

check() {
  local name
  for name in $(names); do
    template "$name" >"$tools/$name.yaml" || fail "$name cannot be rendered"
    # shellcheck disable=SC2086
    python dev/helm_rendered.py check "$tools/$name.yaml" "$chart/files" $kubernetes_versions || exit $?
  done
  umbrella
}

pages() {
  local path paths
  python dev/helm_pages.py manifests || exit $?
  paths=$(python dev/helm_pages.py values "$tools/pages") || exit $?
  for path in $paths; do
    # What every release must be given stands below.
    helm template oncebox "$chart" --namespace relay --kube-version "$kubernetes_version" --values "$chart/ci/default-values.yaml" \
      --values "$path" >"$tools/page.yaml" || fail "$path cannot be rendered"
    # shellcheck disable=SC2086
    python dev/helm_rendered.py check "$tools/page.yaml" "$chart/files" $kubernetes_versions || fail "$path"
  done
}

extract() {
  local name=${1:?which?} folder=${2:?where to?}
  template "$name" >"$tools/$name.yaml" || fail "$name cannot be rendered"
  python dev/helm_rendered.py extract "$tools/$name.yaml" "$folder" || return $?
  # What signs has a form of its own.
  sed -i "s/^\([A-Z_]*SIGNING_SECRET\)=.*/\1=whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/" "$folder/env"
}

validate() {
  local binary=${1:?which binary?} name folder fine=0
  shift
  [ -x "$binary" ] || give_up "there is no $binary"
  for name in $([ $# = 0 ] && names || echo "$@"); do
    folder=target/helm/$name
    extract "$name" "$folder" || exit $?
    echo "== $name"
    (
      set -a
      # shellcheck source=/dev/null
      source "$folder/env"
      "$binary" validate --config "$folder/config" && "$binary" test --config "$folder/config"
    ) || fine=1
  done
  [ "$fine" = 0 ] || fail "oncebox refuses what was rendered"
}

everything() {
  lint && golden --check && check && pages && if [ -n "${1:-}" ]; then validate "$1"; fi
}

case "${1:-}" in
  tool) tool ;;
  lint | template | golden | check | pages | alerts | extract | validate) tool && "$@" ;;
  all) shift && tool && everything "$@" ;;
  *) give_up "which? tool, lint, template, golden, check, pages, alerts, extract, validate or all" ;;
esac
