{{/* What the relay's pods and the hooks' pods have in common: the same image, configuration, variables and secrets. */}}

{{- define "oncebox.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret | quote }}
      key: {{ .key | quote }}
{{- end }}

{{- define "oncebox.environment" -}}
{{- $db := .Values.externalDatabase -}}
- name: ONCEBOX_LOG
  value: {{ .Values.log.filter | quote }}
{{- if $db.existingSecretUrlKey }}
{{ include "oncebox.secretVariable" (dict "name" "DATABASE_URL" "secret" $db.existingSecret "key" $db.existingSecretUrlKey) }}
{{- else if $db.existingSecret }}
{{ include "oncebox.secretVariable" (dict "name" "DATABASE_PASSWORD" "secret" $db.existingSecret "key" $db.existingSecretPasswordKey) }}
{{- with $db.existingSecretUserKey }}
{{ include "oncebox.secretVariable" (dict "name" "DATABASE_USER" "secret" $db.existingSecret "key" .) }}
{{- end }}
{{- end }}
{{- with $db.existingSecretDirectUrlKey }}
{{ include "oncebox.secretVariable" (dict "name" "DATABASE_DIRECT_URL" "secret" $db.existingSecret "key" .) }}
{{- end }}
{{- with .Values.kafka }}
{{- if hasPrefix "SASL" .securityProtocol }}
{{ include "oncebox.secretVariable" (dict "name" "KAFKA_SASL_PASSWORD" "secret" .sasl.existingSecret "key" .sasl.existingSecretPasswordKey) }}
{{- end }}
{{- end }}
{{- range $name, $from := .Values.secretEnv }}
{{ include "oncebox.secretVariable" (dict "name" $name "secret" $from.secret "key" $from.key) }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Existing Secrets that are mounted, as {name, secret, path, items}. */}}
{{- define "oncebox.secretVolumes" -}}
{{- $db := .Values.externalDatabase }}
{{- $tls := .Values.kafka.tls }}
volumes:
  - {name: admin, secret: {{ .Values.admin.existingSecret | quote }}, path: /run/secrets/oncebox-admin}
  {{- with $db.existingCaSecret }}
  - {name: database-ca, secret: {{ . | quote }}, path: /run/secrets/oncebox-database, key: {{ $db.existingCaSecretKey | quote }}}
  {{- end }}
  {{- with $tls.existingCaSecret }}
  - {name: kafka-ca, secret: {{ . | quote }}, path: /run/secrets/oncebox-kafka, key: {{ $tls.existingCaSecretKey | quote }}}
  {{- end }}
  {{- with $tls.existingClientSecret }}
  - {name: kafka-client, secret: {{ . | quote }}, path: /run/secrets/oncebox-kafka-client}
  {{- end }}
  {{- range .Values.secretFiles }}
  - {name: file-{{ .name }}, secret: {{ .secret | quote }}, path: /run/secrets/oncebox/{{ .name }}}
  {{- end }}
{{- end }}

{{/* Takes {root, args}. */}}
{{- define "oncebox.container" -}}
image: {{ include "oncebox.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: {{ toJson (concat (list "--log" .root.Values.log.format) .args) }}
env:
  {{- include "oncebox.environment" .root | nindent 2 }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
volumeMounts:
  # The folder, not single files of it: those would never change while the pod runs.
  - name: config
    mountPath: /etc/oncebox
    readOnly: true
  {{- range (include "oncebox.secretVolumes" .root | fromYaml).volumes }}
  - name: {{ .name }}
    mountPath: {{ .path }}
    readOnly: true
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Takes {root, configMap, serviceAccount}. */}}
{{- define "oncebox.pod" -}}
serviceAccountName: {{ .serviceAccount | quote }}
automountServiceAccountToken: false
# Variables for every Service of the namespace would only be in the way of `${NAME}`.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: config
    configMap:
      name: {{ .configMap }}
  {{- range (include "oncebox.secretVolumes" .root | fromYaml).volumes }}
  - name: {{ .name }}
    secret:
      secretName: {{ .secret | quote }}
      # Readable for the group, which is fsGroup.
      defaultMode: 0440
      {{- with .key }}
      items:
        - {key: {{ . | quote }}, path: ca.crt}
      {{- end }}
  {{- end }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
