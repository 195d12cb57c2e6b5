{{- define "troupemq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Names of pods are names of nodes, and end in -0, -1, ..; what is derived from this one adds up to 10 characters. */}}
{{- define "troupemq.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "troupemq.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "troupemq.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "troupemq.selector" -}}
app.kubernetes.io/name: {{ include "troupemq.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "troupemq.labels" -}}
{{ include "troupemq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- define "troupemq.metadata" -}}
name: {{ include "troupemq.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "troupemq.labels" . | nindent 2 }}
{{- end -}}

{{- define "troupemq.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "troupemq.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "troupemq.clusterSecret" -}}
{{- default (printf "%s-cluster" (include "troupemq.fullname" .)) .Values.cluster.existingSecret -}}
{{- end -}}

{{- define "troupemq.usersSecret" -}}
{{- default (printf "%s-users" (include "troupemq.fullname" .)) .Values.authentication.existingSecret -}}
{{- end -}}

{{- define "troupemq.tlsSecret" -}}
{{- default (printf "%s-tls" (include "troupemq.fullname" .)) .Values.tls.secretName -}}
{{- end -}}

{{- define "troupemq.clusterTlsSecret" -}}
{{- default (printf "%s-peers-tls" (include "troupemq.fullname" .)) .Values.cluster.tls.secretName -}}
{{- end -}}

{{/* Whether File RBAC decides who comes in: not where everybody does, nor where certificates do and no file was given. */}}
{{- define "troupemq.hasUsers" -}}
{{- if not .Values.authentication.anonymous -}}
{{- if or .Values.authentication.existingSecret (not .Values.authentication.clientCertificate.enabled) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupemq.hasPlain" -}}
{{- if not (and .Values.tls.enabled .Values.tls.only) -}}true{{- end -}}
{{- end -}}

{{/* Ports for clients, as YAML: name and number. */}}
{{- define "troupemq.clientPorts" -}}
{{- if include "troupemq.hasPlain" . }}
{{- if .Values.listeners.mqtt.enabled }}
- name: mqtt
  port: {{ .Values.listeners.mqtt.port }}
{{- end }}
{{- if .Values.listeners.websocket.enabled }}
- name: websocket
  port: {{ .Values.listeners.websocket.port }}
{{- end }}
{{- end }}
{{- if .Values.tls.enabled }}
- name: mqtts
  port: {{ .Values.tls.mqttPort }}
- name: wss
  port: {{ .Values.tls.websocketPort }}
{{- end }}
{{- end -}}

{{- define "troupemq.expectedNodes" -}}
{{- if kindIs "invalid" .Values.cluster.expectedNodes -}}
{{- .Values.replicas | int -}}
{{- else -}}
{{- .Values.cluster.expectedNodes | int -}}
{{- end -}}
{{- end -}}

{{/* Seconds that the program may take to stop; the formula stands in values.yaml. 2 and 4 are what src/broker/stop.rs keeps for the hand-over and
for what comes after the clients. */}}
{{- define "troupemq.stopSeconds" -}}
{{- $rate := .Values.shutdown.clientsPerSecond | int -}}
{{- $clients := .Values.shutdown.clientsPerNode | int -}}
{{- $parting := div (sub (add $clients $rate) 1) $rate -}}
{{- max 10 (add (.Values.shutdown.delaySeconds | int) 2 $parting 4) -}}
{{- end -}}

{{- define "troupemq.graceSeconds" -}}
{{- add (.Values.shutdown.noticeSeconds | int) (include "troupemq.stopSeconds" . | int) 5 -}}
{{- end -}}

{{/* What no schema can say. */}}
{{- define "troupemq.check" -}}
{{- if not (trim (include "troupemq.clientPorts" .)) -}}
{{- fail "no listener is left for clients: set listeners.mqtt.enabled, listeners.websocket.enabled or tls.enabled" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.secretName) (not .Values.tls.certManager.enabled) -}}
{{- fail "tls.enabled needs a certificate: name a Secret with tls.crt and tls.key in tls.secretName, or set tls.certManager.enabled" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.enabled) -}}
{{- fail "tls.certManager.enabled has no effect without tls.enabled: set that too" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name is empty: name the Issuer or ClusterIssuer that signs the certificate" -}}
{{- end -}}
{{- if and (ne .Values.tls.clientAuthentication "NONE") (not .Values.tls.enabled) -}}
{{- fail "tls.clientAuthentication has no effect without tls.enabled: set that too" -}}
{{- end -}}
{{- $away := max 1 (div (sub (int .Values.replicas) 1) 2) -}}
{{- if and .Values.podDisruptionBudget.enabled (gt (int .Values.podDisruptionBudget.maxUnavailable) (int $away)) -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable is %d; allowed with %d replicas: %d at most, or evictions may take a majority at once" (int .Values.podDisruptionBudget.maxUnavailable) (int .Values.replicas) $away) -}}
{{- end -}}
{{- with .Values.cluster.tls -}}
{{- if and .enabled (not .secretName) (not .certManager.enabled) -}}
{{- fail "cluster.tls.enabled needs a certificate: name a Secret with tls.crt, tls.key and ca.crt in cluster.tls.secretName, or set cluster.tls.certManager.enabled" -}}
{{- end -}}
{{- if and (or .certManager.enabled .optional) (not .enabled) -}}
{{- fail "cluster.tls.certManager.enabled and cluster.tls.optional have no effect without cluster.tls.enabled: set that too" -}}
{{- end -}}
{{- if and .certManager.enabled (not .certManager.issuerRef.name) -}}
{{- fail "cluster.tls.certManager.issuerRef.name is empty: name the Issuer or ClusterIssuer that signs the pods' certificate, and nothing else" -}}
{{- end -}}
{{- end -}}
{{- if .Values.authentication.clientCertificate.enabled -}}
{{- if or (not .Values.tls.enabled) (eq .Values.tls.clientAuthentication "NONE") -}}
{{- fail "authentication.clientCertificate.enabled needs tls.enabled, and tls.clientAuthentication OPTIONAL or REQUIRED: nobody shows a certificate otherwise" -}}
{{- end -}}
{{- end -}}
{{- if gt (include "troupemq.stopSeconds" . | int) 86400 -}}
{{- fail (printf "shutdown: to part with %d clients at %d in a second takes %s seconds; allowed: 86400 in all, delaySeconds included; raise shutdown.clientsPerSecond" (.Values.shutdown.clientsPerNode | int) (.Values.shutdown.clientsPerSecond | int) (include "troupemq.stopSeconds" .)) -}}
{{- end -}}
{{- if and .Values.authentication.anonymous .Values.authentication.existingSecret -}}
{{- fail "authentication.anonymous and authentication.existingSecret exclude each other: empty one of them" -}}
{{- end -}}
{{- if and .Values.authentication.anonymous .Values.authentication.clientCertificate.enabled -}}
{{- fail "authentication.anonymous and authentication.clientCertificate.enabled exclude each other: unset one of them" -}}
{{- end -}}
{{- if and .Values.cluster.secret .Values.cluster.existingSecret -}}
{{- fail "cluster.secret and cluster.existingSecret exclude each other: empty one of them" -}}
{{- end -}}
{{- if lt (include "troupemq.expectedNodes" . | int) (.Values.replicas | int) -}}
{{- fail (printf "cluster.expectedNodes is %s and replicas %d: pods that lost their volumes could take themselves for a new cluster; raise cluster.expectedNodes, or leave it null" (include "troupemq.expectedNodes" .) (.Values.replicas | int)) -}}
{{- end -}}
{{- $running := dig "spec" "replicas" 0 (lookup "apps/v1" "StatefulSet" .Release.Namespace (include "troupemq.fullname" .) | default dict) | int -}}
{{- if and (eq $running 0) (le (mul 2 (.Values.replicas | int)) (include "troupemq.expectedNodes" . | int)) -}}
{{- fail (printf "cluster.expectedNodes is %s and replicas %d: more than half of the expected nodes found the cluster, these would wait for ever; lower cluster.expectedNodes, or leave it null" (include "troupemq.expectedNodes" .) (.Values.replicas | int)) -}}
{{- end -}}
{{- if and (gt $running (.Values.replicas | int)) (not .Values.allowShrink) -}}
{{- $pod := printf "%s-%d" (include "troupemq.fullname" .) (sub $running 1) -}}
{{- fail (printf "replicas would go from %d to %d, and pods that are only taken away stay members that count for majorities: have each leave first, %s before the others (kubectl -n %s exec %s -- troupemq cluster leave), then upgrade with --set allowShrink=true" $running (.Values.replicas | int) $pod .Release.Namespace $pod) -}}
{{- end -}}
{{- with .Values.monitoring.serviceMonitor -}}
{{- if and .enabled (eq .port "metrics") (not $.Values.prometheus.enabled) -}}
{{- fail "monitoring.serviceMonitor.port is metrics, and prometheus.enabled is false: set that, or monitoring.serviceMonitor.port=http" -}}
{{- end -}}
{{- end -}}
{{- $ports := dict -}}
{{- range concat (include "troupemq.clientPorts" . | fromYamlArray) (list (dict "name" "cluster.port" "port" .Values.cluster.port) (dict "name" "http.port" "port" .Values.http.port) (dict "name" "health.port" "port" .Values.health.port)) (ternary (list (dict "name" "prometheus.port" "port" .Values.prometheus.port)) list .Values.prometheus.enabled) -}}
{{- $port := .port | int | toString -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "port %s is taken twice, by %s and %s: choose another for one of them" $port (get $ports $port) .name) -}}
{{- end -}}
{{- $_ := set $ports $port .name -}}
{{- end -}}
{{- end -}}
