{{/* The pod of the pipeline, of both modes. */}}
{{- define "tailrace.pipelinePod" -}}
{{- $name := printf "%s-pipeline" (include "tailrace.fullname" .) -}}
{{- $continuous := eq .Values.pipeline.mode "continuous" -}}
serviceAccountName: {{ $name }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if $continuous }}
# SIGTERM ends it after the batch that runs. A kill is safe: nothing of the batch is committed twice.
terminationGracePeriodSeconds: 300
{{- else }}
restartPolicy: Never
{{- end }}
securityContext:
  {{- include "tailrace.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "tailrace.placement" .Values.pipeline | trim }}
{{ . }}
{{- end }}
containers:
  - name: pipeline
    {{- with .Values.pipeline.image }}
    image: {{ default $.Values.image.repository .repository }}:{{ default (printf "%s-pipeline" (default $.Chart.AppVersion $.Values.image.tag)) .tag }}
    {{- end }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    terminationMessagePolicy: FallbackToLogsOnError
    args: [pipeline, --config, /etc/tailrace/config.yaml{{ if not $continuous }}, --once, --maintain{{ end }}]
    envFrom:
      - secretRef:
          name: {{ default (printf "%s-s3" (include "tailrace.fullname" .)) .Values.pipeline.existingSecret }}
          optional: true
    {{- with .Values.pipeline.env }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if $continuous }}
    ports:
      - name: http
        containerPort: {{ include "tailrace.pipelinePort" . }}
    startupProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 60
    livenessProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    readinessProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 2
    {{- end }}
    resources:
      {{- toYaml .Values.pipeline.resources | nindent 6 }}
    securityContext:
      {{- include "tailrace.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - {name: config, mountPath: /etc/tailrace, readOnly: true}
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: config
    configMap:
      name: {{ $name }}
  # Spark's shuffle files, and what its client of S3 has not sent yet.
  - name: tmp
    emptyDir: {sizeLimit: {{ .Values.pipeline.temporarySize }}}
{{- end }}

{{/* Its section of the configuration. JSON. */}}
{{- define "tailrace.pipelineConfig" -}}
{{- $section := deepCopy .Values.config.pipeline -}}
{{- $http := mergeOverwrite (dict "host" "0.0.0.0" "port" 9465) (default dict $section.http) -}}
{{- if regexMatch "(^|:-)(127\\.|localhost|::1)" $http.host -}}
{{- fail "config.pipeline.http.host: probes and the Service do not reach the pod on loopback; leave it out, which means 0.0.0.0" -}}
{{- end -}}
{{- $_ := set $section "http" $http -}}
{{- dict "pipeline" $section | toJson -}}
{{- end }}

{{- define "tailrace.pipelinePort" -}}
{{- $port := (include "tailrace.pipelineConfig" . | fromJson).pipeline.http.port -}}
{{- if kindIs "string" $port -}}
{{- fail "config.pipeline.http.port: the chart needs the number, for probes and the Service" -}}
{{- end -}}
{{- $port -}}
{{- end }}
