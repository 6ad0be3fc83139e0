{{/* Names and labels. */}}

{{- define "oncebox.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Short enough for what is put behind it: hooks and configuration. */}}
{{- define "oncebox.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else if contains (include "oncebox.name" .) .Release.Name }}
{{- .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "oncebox.name" .) | trunc 48 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Every pod of the release, hooks included. */}}
{{- define "oncebox.releaseLabels" -}}
{{/* Quoted: a release may be called 2026, or true. */ -}}
app.kubernetes.io/name: {{ include "oncebox.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The relays only: a hook's pod must never count as one of the Deployment's, nor hold up a disruption budget. */}}
{{- define "oncebox.selectorLabels" -}}
{{ include "oncebox.releaseLabels" . }}
app.kubernetes.io/component: relay
{{- end }}

{{/* The Deployments as a YAML list: one that does everything, or those of `deployments`, each with what it leaves out filled in. */}}
{{- define "oncebox.deployments" -}}
{{- $values := .Values }}
{{- $base := dict "name" "" "roles" (list) "replicaCount" $values.replicaCount "autoscaling" $values.autoscaling "resources" $values.resources }}
{{- $all := list }}
{{- $roles := list }}
{{- $names := list }}
{{- range $values.deployments }}
  {{- if has .name $names }}
    {{- fail (printf "deployments: two are named %s" .name) }}
  {{- end }}
  {{- $names = append $names .name }}
  {{- $all = append $all (mergeOverwrite (deepCopy $base) .) }}
  {{- $roles = concat $roles .roles }}
{{- end }}
{{- range (ternary (list "ingest" "relay" "admin") (list) (gt (len $all) 0)) }}
  {{- if not (has . $roles) }}
    {{- fail (printf "deployments: none has the role %s" .) }}
  {{- end }}
{{- end }}
{{- toYaml (default (list $base) $all) }}
{{- end }}

{{/* Takes {root, name}: of one of them. */}}
{{- define "oncebox.deploymentName" -}}
{{- include "oncebox.fullname" .root }}{{ with .name }}-{{ . }}{{ end }}
{{- end }}

{{- define "oncebox.deploymentLabels" -}}
{{ include "oncebox.selectorLabels" .root }}
{{- with .name }}
oncebox/deployment: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Pods that answer operators: those with the role. Takes the roles. */}}
{{- define "oncebox.apiLabel" -}}
{{- if or (not .) (has "admin" .) -}}
oncebox/api: "true"
{{- end }}
{{- end }}

{{/* The one that answers operators. */}}
{{- define "oncebox.adminDeployment" -}}
{{- $name := "" }}
{{- range .Values.deployments }}
  {{- if and (not $name) (has "admin" .roles) }}
    {{- $name = .name }}
  {{- end }}
{{- end }}
{{- include "oncebox.deploymentName" (dict "root" . "name" $name) }}
{{- end }}

{{/* Of every object. `component` is added where there is one. */}}
{{- define "oncebox.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "oncebox.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "oncebox.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "oncebox.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Hooks run before the release's own service account is there. */}}
{{- define "oncebox.hookServiceAccountName" -}}
{{- $existing := ternary "" .Values.serviceAccount.name .Values.serviceAccount.create }}
{{- coalesce .Values.hooks.serviceAccountName $existing "default" }}
{{- end }}

{{- define "oncebox.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}
