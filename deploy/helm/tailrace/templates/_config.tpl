{{/* The configuration: the values, and what the chart knows. JSON. */}}
{{- define "tailrace.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $mongodb := default dict $config.mongodb -}}
{{- if not (or $mongodb.uri $mongodb.uri_file) -}}
{{- $_ := set $mongodb "uri_file" "/run/secrets/tailrace/uri" -}}
{{- end -}}
{{- $http := mergeOverwrite (dict "host" "0.0.0.0" "port" 9464) (default dict $config.http) -}}
{{- if not (or $http.token $http.token_file) -}}
{{- $_ := set $http "token" "${TAILRACE_HTTP_TOKEN:-}" -}}
{{- end -}}
{{- $_ := set $config "mongodb" $mongodb -}}
{{- $_ := set $config "http" $http -}}
{{- $delivery := mergeOverwrite (dict "max_in_flight_bytes" 33554432) (default dict $config.delivery) -}}
{{- $_ := set $config "delivery" $delivery -}}
{{- if not $config.store -}}
{{- $_ := set $config "store" (dict "path" "/data/tailrace.db") -}}
{{- end -}}
{{- toJson $config -}}
{{- end }}

{{/* Whether the pods share the scopes. An empty section is one, too. */}}
{{- define "tailrace.shared" -}}
{{- if kindIs "map" .Values.config.replicas }}true{{ end -}}
{{- end }}

{{/* What a reload refuses, or cannot read again: a change of it replaces the pods. */}}
{{- define "tailrace.restart" -}}
{{- $config := include "tailrace.config" . | fromJson -}}
{{- if .Values.reload.enabled -}}
{{- $files := dict -}}
{{- range $name, $handler := $config.handlers -}}
{{- if eq $handler.type "jsonl" }}{{ $_ := set $files $name $handler }}{{ end -}}
{{- end -}}
{{- $config = dict "store" $config.store "replicas" $config.replicas "telemetry" $config.telemetry "http" (pick $config.http "host" "port") "jsonl" $files -}}
{{- end -}}
{{- toJson (list $config .Values.modules.files .Values.http.token) | sha256sum -}}
{{- end }}

{{/* The ports that the handlers and the collector need, as JSON: {"ports": [5432, 9092]}. */}}
{{- define "tailrace.destinationPorts" -}}
{{- $usual := dict "postgresql" 5432 "kafka" 9092 "nats" 4222 "redis" 6379 "mongodb" 27017 "http" 443 "parquet" 443 "telemetry" 4318 -}}
{{- $keys := dict "postgresql" "dsn" "kafka" "bootstrap_servers" "nats" "servers" "redis" "url" "mongodb" "uri" "http" "url" "parquet" "path" "telemetry" "endpoint" -}}
{{- $ports := list -}}
{{- $all := list -}}
{{- range $handler := .Values.config.handlers }}{{ $all = append $all $handler }}{{ end -}}
{{- if kindIs "map" .Values.config.telemetry -}}
{{- $all = append $all (merge (dict "type" "telemetry") .Values.config.telemetry) -}}
{{- end -}}
{{- range $handler := $all -}}
{{- $key := get $keys $handler.type -}}
{{- $address := get $handler (default "none" $key) -}}
{{- if kindIs "slice" $address }}{{ $address = join "," $address }}{{ end -}}
{{- if not (kindIs "string" $address) }}{{ $address = "" }}{{ end -}}
{{- if and $key (or (ne $handler.type "parquet") (hasPrefix "s3://" $address)) -}}
{{- $named := regexFindAll ":[0-9]+([/,?]|$)" $address -1 -}}
{{- range $named }}{{ $ports = append $ports (regexFind "[0-9]+" . | int) }}{{ end -}}
{{- if not $named -}}
{{- $schemes := dict "http" 80 "https" 443 -}}
{{- $ports = append $ports (default (get $usual $handler.type) (get $schemes (regexFind "^https?" $address))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "ports" ($ports | uniq) | toJson -}}
{{- end }}

{{/* What no schema can say: one clear error. */}}
{{- define "tailrace.refuse" -}}
{{- $config := include "tailrace.config" . | fromJson -}}
{{- $store := default "sqlite" $config.store.type -}}
{{- if and (gt (int .Values.replicas) 1) (not (include "tailrace.shared" .)) -}}
{{- fail "replicas: more than one pod needs config.replicas, or each pod takes the scopes from the other; add config.replicas.lease_seconds, or set replicas to 1" -}}
{{- end -}}
{{- if and (include "tailrace.shared" .) (eq $store "sqlite") -}}
{{- fail "config.replicas: the pods share the store: set config.store.type to mongodb" -}}
{{- end -}}
{{- if and (eq $store "sqlite") (not .Values.persistence.enabled) -}}
{{- fail "persistence.enabled: without a volume the positions in the SQLite store end with the pod; enable it, or set config.store.type to mongodb" -}}
{{- end -}}
{{- if and $config.mongodb.uri $config.mongodb.uri_file -}}
{{- fail "config.mongodb: set uri or uri_file, not both" -}}
{{- end -}}
{{- if kindIs "string" $config.http.port -}}
{{- fail "config.http.port: the chart needs the number, for probes and the Service" -}}
{{- end -}}
{{- if regexMatch "(^|:-)(127\\.|localhost|::1)" $config.http.host -}}
{{- fail "config.http.host: probes, the Service and monitors do not reach the pod on loopback; leave it out, which means 0.0.0.0" -}}
{{- end -}}
{{- if and .Values.mongodb.uri .Values.mongodb.existingSecret -}}
{{- fail "mongodb: set uri or existingSecret, not both" -}}
{{- end -}}
{{- if and .Values.http.token .Values.http.existingSecret -}}
{{- fail "http: set token or existingSecret, not both" -}}
{{- end -}}
{{- if hasKey .Values.modules.files "config.yaml" -}}
{{- fail "modules.files: config.yaml is made of config" -}}
{{- end -}}
{{- if and (ne .Values.pipeline.mode "none") (not (kindIs "map" $config.pipeline)) -}}
{{- fail "pipeline.mode: set config.pipeline too, with lake and tables" -}}
{{- end -}}
{{- end }}
