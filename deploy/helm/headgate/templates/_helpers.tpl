{{- /* The image of all processes. */}}
{{- define "headgate.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else if .tag }}:{{ .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* What processes show the broker, empty for nothing. The chart's own broker knows NKEYs only. */}}
{{- define "headgate.credentials" -}}
{{- if .Values.nats.enabled -}}
nkeys
{{- else if ne .Values.nats.credentials "none" -}}
{{ .Values.nats.credentials }}
{{- end -}}
{{- end -}}

{{- /* (list $ "framework" ...): not empty if the cell runs one of the frameworks. */}}
{{- define "headgate.runs" -}}
{{- $wanted := (first .).Values.frameworks -}}
{{- if empty $wanted -}}
true
{{- else -}}
{{- range rest . -}}{{- if has . $wanted -}}true{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The settings of the broker. */}}
{{- define "headgate.nats.settings" -}}
{{- if .Values.nats.enabled }}
url: nats://nats-0.nats:4222,nats://nats-1.nats:4222,nats://nats-2.nats:4222
monitor_url: http://nats-0.nats:8222
replicas: 3
{{- else }}
url: {{ .Values.nats.url }}
{{- end }}
{{- with include "headgate.credentials" . }}
{{ eq . "nkeys" | ternary "nkey_seed_file: /etc/headgate-nats/seed" "creds_file: /etc/headgate-nats/creds" }}
{{- end }}
{{- if .Values.nats.tls.secret }}
tls_required: true
tls_ca_file: /etc/headgate-nats-tls/ca.crt
{{- if .Values.nats.tls.client }}
tls_cert_file: /etc/headgate-nats-tls/tls.crt
tls_key_file: /etc/headgate-nats-tls/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{- /* headgate.yaml: the value `settings` over what the other values say. */}}
{{- define "headgate.settings" -}}
{{- $said := dict "nats" (include "headgate.nats.settings" . | fromYaml) -}}
{{- if ne .Release.Namespace "headgate-system" -}}
{{- range list "record" "webhook" "visibility" -}}
{{- $_ := set $said . (dict "namespace" $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- if .Values.visibility.enabled -}}
{{- $_ := set $said "visibility" (merge (dict "enabled" true) (get $said "visibility" | default dict)) -}}
{{- end -}}
{{- if .Values.kubeSchedulerConfig -}}
{{- $_ := set $said "placement" (dict "configuration" "/etc/headgate/kube-scheduler-config.yaml") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $said (deepCopy .Values.settings)) -}}
{{- end -}}

{{- /* The contents of the ConfigMap headgate. */}}
{{- define "headgate.config" -}}
headgate.yaml: |
  {{- include "headgate.settings" . | nindent 2 }}
kueue-config.yaml: |
  {{- toYaml .Values.configuration | nindent 2 }}
{{- if .Values.kubeSchedulerConfig }}
kube-scheduler-config.yaml: |
  {{- toYaml .Values.kubeSchedulerConfig | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The contents of the ConfigMap of the chart's broker. */}}
{{- define "headgate.nats.config" -}}
nats.conf: |
  {{- .Files.Get "files/nats.conf" | nindent 2 }}
users.conf: |
  {{- required "nats.users: the chart's broker needs users.conf: headgate nats users --out users, then --set-file nats.users=users/users.conf" .Values.nats.users | nindent 2 }}
{{- end -}}

{{- /* Values that exclude each other, said once. */}}
{{- define "headgate.check" -}}
{{- if and (or (eq .Values.crds.admission "webhook") (eq .Values.crds.conversion "webhook")) (not .Values.webhook.enabled) -}}
{{- fail "crds.admission and crds.conversion: webhook needs webhook.enabled=true" -}}
{{- end -}}
{{- if and .Values.nats.enabled (eq .Values.nats.credentials "creds") -}}
{{- fail "nats.credentials: the chart's broker knows nkeys only; leave it out or set nkeys" -}}
{{- end -}}
{{- end -}}
