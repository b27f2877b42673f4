{{- define "gateway.labels" -}}
app.kubernetes.io/name: {{ .Release.Name }}
app.kubernetes.io/part-of: analytics-gateway
{{- end }}
{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ .Release.Name }}
{{- end }}
{{- define "gateway.storeLabels" -}}
app.kubernetes.io/name: {{ .Release.Name }}-store
app.kubernetes.io/part-of: analytics-gateway
{{- end }}
{{- define "gateway.storeSelector" -}}
app.kubernetes.io/name: {{ .Release.Name }}-store
{{- end }}
{{- define "gateway.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: { drop: [ALL] }
{{- end }}
{{- define "gateway.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}
