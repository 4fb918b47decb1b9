{{- define "keyway.labels" -}}
{app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: {{ .root.Release.Name }}}
{{- end }}

{{- define "keyway.entrance" -}}
{{ eq .Values.layout "door" | ternary .Values.app.name (print .Release.Name "-router") }}
{{- end }}

{{- define "keyway.template" -}}
metadata:
  labels: {{ include "keyway.labels" . }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ .admin | quote }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .grace }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {app.kubernetes.io/name: {{ .name }}}
  {{- with .root.Values.pod }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "keyway.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* The variables that every member has, of which an embedded program's have no prefix. */ -}}
{{- define "keyway.addresses" -}}
- {name: {{ .prefix }}LISTEN, value: {{ .listen | quote }}}
- {name: {{ .prefix }}ADMIN, value: "0.0.0.0:{{ .admin }}"}
- {name: {{ .prefix }}GOSSIP, value: "$(POD_IP):7946"}
- {name: {{ .prefix }}JOIN, value: "{{ .root.Release.Name }}-gossip:7946"}
{{- with .root.Values.store }}
- {name: {{ $.prefix }}STORE, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "keyway.settings" -}}
{{- $set := list "admin" "config" "drain-notice" "drain-timeout" "gossip" "gossip-key" "join" "listen" "lock-file" "name" "peer-ca" "peer-cert" "peer-key" "public" "redis" "store" "supervise" "tls-cert" "tls-key" "upstream" "upstream-health" }}
{{- range $name, $value := . }}
{{- if has $name $set }}{{ fail (printf "settings: the chart itself sets %s: see the other values" $name) }}{{ end }}
- {name: KEYWAY_{{ $name | upper | replace "-" "_" }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "keyway.tls" -}}
{{- if and .clients .root.Values.clients.tlsSecret }}
- {name: KEYWAY_TLS_CERT, value: /run/secrets/tls/tls.crt}
- {name: KEYWAY_TLS_KEY, value: /run/secrets/tls/tls.key}
{{- end }}
{{- if .root.Values.peerTLSSecret }}
- {name: {{ .prefix }}PEER_CERT, value: /run/secrets/peer/tls.crt}
- {name: {{ .prefix }}PEER_KEY, value: /run/secrets/peer/tls.key}
- {name: {{ .prefix }}PEER_CA, value: /run/secrets/peer/ca.crt}
{{- end }}
{{- end }}

{{- /* What follows the variables of a member's container. */ -}}
{{- define "keyway.member" -}}
ports:
  {{- if .clients }}
  - {name: http, containerPort: 8080}
  {{- end }}
  {{- if .worker }}
  - {name: link, containerPort: 9000}
  {{- end }}
  - {name: admin, containerPort: {{ .admin }}}
  - {name: gossip, containerPort: 7946}
  - {name: gossip-udp, containerPort: 7946, protocol: UDP}
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  failureThreshold: 1
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  {{- if not .prefix }}
  initialDelaySeconds: 10
  {{- end }}
  periodSeconds: 10
  failureThreshold: 6
resources: {{ toJson .resources }}
{{ include "keyway.confined" . }}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/keyway, readOnly: true}
  {{- if .worker }}
  - {name: run, mountPath: /run/keyway}
  {{- end }}
  - {name: tmp, mountPath: /tmp}
  {{- if and .clients .root.Values.clients.tlsSecret }}
  - {name: tls, mountPath: /run/secrets/tls, readOnly: true}
  {{- end }}
  {{- if .root.Values.peerTLSSecret }}
  - {name: peer, mountPath: /run/secrets/peer, readOnly: true}
  {{- end }}
{{- end }}

{{- define "keyway.volumes" -}}
- name: secrets
  secret: {secretName: {{ .root.Values.secret }}, defaultMode: 0440}
{{- if .worker }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
# What of bodies and answers does not fit into memory.
- name: tmp
  emptyDir: {sizeLimit: {{ .worker | ternary "10Gi" "5Gi" }}}
{{- if .clients }}
{{- with .root.Values.clients.tlsSecret }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- with .root.Values.peerTLSSecret }}
- name: peer
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
