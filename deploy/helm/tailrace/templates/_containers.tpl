{{/* What the daemon and the containers beside it share: they read the same files and variables. */}}
{{- define "tailrace.environment" -}}
env:
  - name: TAILRACE_HTTP_TOKEN
    valueFrom:
      secretKeyRef: {name: {{ include "tailrace.httpSecret" . }}, key: {{ .Values.http.key | quote }}, optional: true}
  {{- if .Values.modules.image.reference }}
  - {name: PYTHONPATH, value: "/etc/tailrace:/opt/modules"}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tailrace.mounts" -}}
- {name: config, mountPath: /etc/tailrace, readOnly: true}
- {name: mongodb, mountPath: /run/secrets/tailrace, readOnly: true}
- {name: data, mountPath: /data}
{{- range $index, $file := .Values.secretFiles }}
- {name: {{ printf "secret-%d" $index }}, mountPath: {{ $file.mountPath | quote }}, readOnly: true}
{{- end }}
{{- if .Values.modules.image.reference }}
- {name: modules, mountPath: /opt/modules, readOnly: true}
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tailrace.initContainers" -}}
{{- with .Values.modules.image }}
{{- if .reference }}
- name: modules
  image: {{ .reference }}
  imagePullPolicy: {{ .pullPolicy }}
  command: [cp, -R, {{ printf "%s/." .path }}, /opt/modules]
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  securityContext:
    {{- include "tailrace.containerSecurity" $ | nindent 4 }}
  volumeMounts:
    - {name: modules, mountPath: /opt/modules}
{{- end }}
{{- end }}
{{- if .Values.check.enabled }}
- name: check
  image: {{ include "tailrace.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  terminationMessagePolicy: FallbackToLogsOnError
  args: [check]
  {{- include "tailrace.environment" . | nindent 2 }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- include "tailrace.containerSecurity" . | nindent 4 }}
  volumeMounts:
    {{- include "tailrace.mounts" . | nindent 4 }}
{{- end }}
{{- end }}

{{/* Before the daemon, so that it looks at the files first: it then misses no change. */}}
{{- define "tailrace.reloader" -}}
- name: reload
  image: {{ include "tailrace.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - sh
    - -c
    {{- $directories := list "/etc/tailrace" "/run/secrets/tailrace" }}
    {{- range .Values.secretFiles }}{{ $directories = append $directories .mountPath }}{{ end }}
    - |
      {{- .Files.Get "files/reload.sh" | nindent 6 }}
    - reload
    - {{ .Values.reload.intervalSeconds | quote }}
    {{- range $directories }}
    - {{ . }}
    {{- end }}
  {{- include "tailrace.environment" . | nindent 2 }}
  resources:
    requests: {cpu: 10m, memory: 64Mi}
    limits: {memory: 128Mi}
  securityContext:
    {{- include "tailrace.containerSecurity" . | nindent 4 }}
  volumeMounts:
    {{- include "tailrace.mounts" . | nindent 4 }}
{{- end }}
