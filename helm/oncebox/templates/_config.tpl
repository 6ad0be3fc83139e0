{{/* The configuration that Oncebox reads, made of the values. Secrets are in it by reference only. */}}

{{/* As key=value and not as a URL: what `${..}` fills in is not percent-encoded, and a password may well hold a `/` or an `@`. */}}
{{- define "oncebox.connection" -}}
{{- $db := .db }}
{{- $user := ternary "${DATABASE_USER}" $db.user (ne $db.existingSecretUserKey "") }}
{{- $password := ternary " password='${DATABASE_PASSWORD}'" "" (ne $db.existingSecret "") }}
{{- printf "host=%s port=%d dbname='%s' user='%s'%s" .host (int .port) $db.database $user $password }}
{{- end }}

{{- define "oncebox.postgres" -}}
{{- $db := .Values.externalDatabase }}
{{- if $db.existingSecretUrlKey }}
url: ${DATABASE_URL}
{{- else if $db.host }}
url: {{ include "oncebox.connection" (dict "db" $db "host" $db.host "port" $db.port) | quote }}
{{- end }}
{{- if $db.existingSecretDirectUrlKey }}
directUrl: ${DATABASE_DIRECT_URL}
{{- else if $db.directHost }}
directUrl: {{ include "oncebox.connection" (dict "db" $db "host" $db.directHost "port" $db.directPort) | quote }}
{{- end }}
{{- if or $db.sslmode $db.existingCaSecret }}
tls:
  {{- /* Whoever gives a CA wants it to be looked at, which `prefer` does not. */}}
  mode: {{ default "verify-full" $db.sslmode }}
  {{- if $db.existingCaSecret }}
  ca: /run/secrets/oncebox-database/ca.crt
  {{- end }}
{{- end }}
{{- end }}

{{- define "oncebox.kafka" -}}
{{- with .Values.kafka }}
{{- with .brokers }}
brokers: {{ join "," . | quote }}
{{- end }}
{{- if ne .securityProtocol "PLAINTEXT" }}
properties:
  security.protocol: {{ .securityProtocol }}
  {{- if hasPrefix "SASL" .securityProtocol }}
  sasl.mechanism: {{ .sasl.mechanism }}
  sasl.username: {{ .sasl.username | quote }}
  sasl.password: ${KAFKA_SASL_PASSWORD}
  {{- end }}
  {{- if hasSuffix "SSL" .securityProtocol }}
  {{- /* The OpenSSL inside the binary knows of no certificates: librdkafka is told to look for the image's. */}}
  ssl.ca.location: {{ ternary "/run/secrets/oncebox-kafka/ca.crt" "probe" (ne .tls.existingCaSecret "") }}
  {{- if .tls.existingClientSecret }}
  ssl.certificate.location: /run/secrets/oncebox-kafka-client/tls.crt
  ssl.key.location: /run/secrets/oncebox-kafka-client/tls.key
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "oncebox.admin" -}}
listen: {{ printf (ternary "[%s]:%d" "%s:%d" (contains ":" .Values.admin.host)) .Values.admin.host (int .Values.admin.port) | quote }}
tokens:
{{- range .Values.admin.tokens }}
  - name: {{ .name | quote }}
    role: {{ .role }}
    token: {{ printf "${file:/run/secrets/oncebox-admin/%s}" .key }}
{{- end }}
{{- end }}

{{/* Mistakes that would only show in a pod's log otherwise. */}}
{{- define "oncebox.check" -}}
{{- $db := .Values.externalDatabase }}
{{- if not .Values.admin.existingSecret }}
{{- fail "admin.existingSecret is empty: the admin listener of a pod can be reached from outside, so it needs a Secret with tokens" }}
{{- end }}
{{- if and (or $db.existingSecretUrlKey $db.existingSecretDirectUrlKey $db.existingSecretUserKey) (not $db.existingSecret) }}
{{- fail "externalDatabase.existingSecret is empty, and a key of it is named" }}
{{- end }}
{{- if and (hasPrefix "SASL" .Values.kafka.securityProtocol) (not (and .Values.kafka.sasl.username .Values.kafka.sasl.existingSecret)) }}
{{- fail "kafka.sasl.username and kafka.sasl.existingSecret are needed for kafka.securityProtocol SASL_PLAINTEXT and SASL_SSL" }}
{{- end }}
{{- if and $db.existingCaSecret (has $db.sslmode (list "disable" "prefer" "require")) }}
{{- fail (printf "externalDatabase.existingCaSecret is given, and sslmode %s does not look at it: verify-full, or verify-ca" $db.sslmode) }}
{{- end }}
{{- with .Values.kafka }}
{{- if and (not (hasPrefix "SASL" .securityProtocol)) (or .sasl.username .sasl.existingSecret) }}
{{- fail (printf "kafka.sasl is given, and kafka.securityProtocol %s does not use it: SASL_SSL, or SASL_PLAINTEXT" .securityProtocol) }}
{{- end }}
{{- if and (not (hasSuffix "SSL" .securityProtocol)) (or .tls.existingCaSecret .tls.existingClientSecret) }}
{{- fail (printf "kafka.tls is given, and kafka.securityProtocol %s does not use it: SASL_SSL, or SSL" .securityProtocol) }}
{{- end }}
{{- end }}
{{- $admin := default dict .Values.config.admin }}
{{- if or (hasKey .Values.config "shutdownGrace") (hasKey $admin "listen") (hasKey $admin "tokens") }}
{{- fail "config holds shutdownGrace, admin.listen or admin.tokens: they stand beside config, because pods and services depend on them" }}
{{- end }}
{{- if hasKey .Values.extraConfigFiles "oncebox.yaml" }}
{{- fail "extraConfigFiles: oncebox.yaml is the name of the chart's own file" }}
{{- end }}
{{- end }}

{{- define "oncebox.config" -}}
{{- include "oncebox.check" . }}
{{- $made := dict
  "kafka" (include "oncebox.kafka" . | fromYaml)
  "postgres" (include "oncebox.postgres" . | fromYaml)
  "admin" (include "oncebox.admin" . | fromYaml)
  "shutdownGrace" .Values.shutdownGrace }}
{{- $config := mergeOverwrite $made (deepCopy .Values.config) }}
{{- if not $config.kafka.brokers }}
{{- fail "kafka.brokers is empty" }}
{{- end }}
{{- if not $config.postgres.url }}
{{- fail "there is no Postgres: externalDatabase.host, or externalDatabase.existingSecretUrlKey with existingSecret" }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* The files of the ConfigMap, which the hooks have a copy of. How far they are indented is said: else the first line of a file decided. */}}
{{- define "oncebox.files" -}}
oncebox.yaml: |2
  {{- include "oncebox.config" . | nindent 2 }}
{{- range $name, $text := .Values.extraConfigFiles }}
{{ $name | quote }}: |2
  {{- $text | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where pods are restarted, another configuration is another ConfigMap: those that still run keep what they were started with, and do not
     read what is meant for the next. 63 characters at most. */}}
{{- define "oncebox.configMapName" -}}
{{- include "oncebox.fullname" . }}-config
{{- if eq .Values.reload.mode "restart" }}-{{ include "oncebox.files" . | sha256sum | trunc 7 }}{{ end }}
{{- end }}

{{/* What rolls the pods when it changes: everything, or only what a running process refuses to take over. */}}
{{- define "oncebox.checksum" -}}
{{- if eq .Values.reload.mode "restart" -}}
checksum/config: {{ include "oncebox.files" . | sha256sum }}
{{- else -}}
{{- $fixed := list (include "oncebox.config" . | fromYaml) }}
{{- range $text := .Values.extraConfigFiles }}
{{- $fixed = append $fixed (fromYaml $text) }}
{{- end }}
{{- $parts := list }}
{{- range $fixed }}
{{- $parts = append $parts (pick . "kafka" "postgres" "admin" "tracing") }}
{{- end -}}
checksum/fixed-config: {{ toYaml $parts | sha256sum }}
{{- end }}
{{- end }}

{{- define "oncebox.millis" -}}
{{- $unit := regexFind "[a-z]+$" . }}
{{- mul (regexFind "^[0-9]+" . | int64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit) }}
{{- end }}

{{/* What is not of the right form is left to `validate`, which says where. Takes {of, else}. */}}
{{- define "oncebox.timeout" -}}
{{- $endpoint := ternary .of dict (kindIs "map" .of) | dig "endpoint" dict }}
{{- toString (default .else (get (ternary $endpoint dict (kindIs "map" $endpoint)) "timeout")) }}
{{- end }}

{{/* Workflows with requests that may take longer than a pod that is stopped waits: what is cut off is in doubt, and is left alone until its
     lease ends. `validate` warns of them too. */}}
{{- define "oncebox.cutOff" -}}
{{- $grace := include "oncebox.millis" .Values.shutdownGrace | int64 }}
{{- $all := list (include "oncebox.config" . | fromYaml) }}
{{- range $text := .Values.extraConfigFiles }}
{{- $all = append $all (fromYaml $text) }}
{{- end }}
{{- $default := "15s" }}
{{- range $all }}
{{- $default = include "oncebox.timeout" (dict "of" .defaults "else" $default) }}
{{- end }}
{{- range $all }}
{{- range (ternary .workflows list (kindIs "slice" .workflows)) }}
{{- $timeout := include "oncebox.timeout" (dict "of" . "else" $default) }}
{{- if and (kindIs "map" .) (regexMatch "^[0-9]+(ms|s|m|h)$" $timeout) (gt (include "oncebox.millis" $timeout | int64) $grace) }}
  {{ .id }}: {{ $timeout }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Longer than the process takes for its requests under way, so that the rest of its end is not cut off either. */}}
{{- define "oncebox.graceSeconds" -}}
{{- $number := regexFind "^[0-9]+" .Values.shutdownGrace | int }}
{{- add 15 (ternary (mul 60 $number) $number (hasSuffix "m" .Values.shutdownGrace)) }}
{{- end }}
