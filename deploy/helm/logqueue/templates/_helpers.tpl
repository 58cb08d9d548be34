{{- define "logqueue.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "logqueue.labels" -}}
{{ include "logqueue.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "logqueue.selector" -}}
app.kubernetes.io/name: logqueue
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "logqueue.keysSecret" -}}
{{- if .Values.existingKeysSecret -}}
{{ .Values.existingKeysSecret }}
{{- else -}}
{{ include "logqueue.name" . }}-keys
{{- end -}}
{{- end -}}
