{{/* The name of all objects: that of the release, with the chart's name unless it has it. With `-pipeline` after it,
     a CronJob's may have 52 characters. */}}
{{- define "tailrace.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 43 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 43 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 43 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "tailrace.serviceAccount" -}}
{{- default (ternary (include "tailrace.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* What selects pods. Pass (list context name), with the name of a program: tailrace or tailrace-pipeline. */}}
{{- define "tailrace.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ $context.Release.Name | quote }}
{{- end }}

{{- define "tailrace.labels" -}}
{{- $context := index . 0 -}}
{{ include "tailrace.selector" . }}
app.kubernetes.io/component: {{ eq (index . 1) "tailrace" | ternary "daemon" "pipeline" }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $context.Chart.Name $context.Chart.Version }}
{{- end }}

{{- define "tailrace.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "tailrace.mongodbSecret" -}}
{{- default (printf "%s-mongodb" (include "tailrace.fullname" .)) .Values.mongodb.existingSecret -}}
{{- end }}

{{- define "tailrace.httpSecret" -}}
{{- default (printf "%s-http" (include "tailrace.fullname" .)) .Values.http.existingSecret -}}
{{- end }}

{{/* Both meet the strictest of the Pod Security Standards. */}}
{{- define "tailrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tailrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where a pod may run. Pass the values that say so: those of the chart, or those below `pipeline`. */}}
{{- define "tailrace.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with get $ $key }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{- end }}
