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
app.kubernetes.io/name: {{ include "oncebox.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The relays only: a hook's pod must never count as one of the Deployment's, nor hold up a disruption budget. */}}
{{- define "oncebox.selectorLabels" -}}
{{ include "oncebox.releaseLabels" . }}
app.kubernetes.io/component: relay
{{- end }}

{{/* Of every object. `component` is added where there is one. */}}
{{- define "oncebox.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "oncebox.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
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
