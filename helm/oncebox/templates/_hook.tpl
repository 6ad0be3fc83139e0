{{/* A hook's Job. Takes {root, name, weight, backoffLimit, args}. One that failed stays, with its log. */}}
{{- define "oncebox.hook" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "oncebox.fullname" .root }}-{{ .name }}
  labels:
    {{- include "oncebox.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-weight: {{ .weight | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    # What was wrong is said by `helm upgrade` itself, where Helm is new enough to know this.
    helm.sh/hook-output-log-policy: hook-failed
spec:
  backoffLimit: {{ .backoffLimit }}
  activeDeadlineSeconds: {{ .root.Values.hooks.activeDeadlineSeconds }}
  template:
    metadata:
      {{- with .root.Values.hooks.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      labels:
        {{- include "oncebox.releaseLabels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
        {{- with mergeOverwrite (deepCopy .root.Values.commonLabels) .root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      restartPolicy: Never
      {{- $configMap := printf "%s-new-config" (include "oncebox.fullname" .root) }}
      {{- include "oncebox.pod" (dict "root" .root "configMap" $configMap "serviceAccount" (include "oncebox.hookServiceAccountName" .root)) | nindent 6 }}
      containers:
        - name: {{ .name }}
          {{- include "oncebox.container" (dict "root" .root "args" .args) | nindent 10 }}
          resources:
            {{- toYaml .root.Values.hooks.resources | nindent 12 }}
{{- end }}
