{{- define "troupemq.connectRate" -}}
<connect-overload-protection>
    <enabled>{{ .Values.listeners.connectRate.enabled }}</enabled>
    {{- if .Values.listeners.connectRate.enabled }}
    <connect-rate>{{ .Values.listeners.connectRate.perSecond | int }}</connect-rate>
    <connect-burst-size>{{ .Values.listeners.connectRate.burst | int }}</connect-burst-size>
    {{- end }}
</connect-overload-protection>
{{- end -}}

{{- define "troupemq.listenerTls" -}}
<tls>
    <keystore>
        <path>/etc/troupemq/tls/tls.crt</path>
        <private-key-path>/etc/troupemq/tls/tls.key</private-key-path>
    </keystore>
    {{- if ne .Values.tls.clientAuthentication "NONE" }}
    <truststore>
        <path>/etc/troupemq/tls/ca.crt</path>
    </truststore>
    {{- end }}
    <client-authentication-mode>{{ .Values.tls.clientAuthentication }}</client-authentication-mode>
</tls>
{{- end -}}

{{- define "troupemq.clusterTls" -}}
<!-- Each pod shows its certificate to the other. -->
<tls>
    <keystore>
        <path>/etc/troupemq/cluster-tls/tls.crt</path>
        <private-key-path>/etc/troupemq/cluster-tls/tls.key</private-key-path>
    </keystore>
    <truststore>
        <path>/etc/troupemq/cluster-tls/ca.crt</path>
    </truststore>
    <hostname-verification>{{ .Values.cluster.tls.hostnameVerification }}</hostname-verification>
    <optional>{{ .Values.cluster.tls.optional }}</optional>
</tls>
{{- end -}}

{{/* The same text as k8s/base/config.xml where values are the defaults. */}}
{{- define "troupemq.config" -}}
<?xml version="1.0" encoding="UTF-8"?>
<hivemq>
    <listeners>
        {{- if include "troupemq.hasPlain" . }}
        {{- if .Values.listeners.mqtt.enabled }}
        <tcp-listener>
            <port>{{ .Values.listeners.mqtt.port }}</port>
            <bind-address>{{ .Values.bindAddress }}</bind-address>
            {{- include "troupemq.connectRate" . | nindent 12 }}
        </tcp-listener>
        {{- end }}
        {{- if .Values.listeners.websocket.enabled }}
        <websocket-listener>
            <port>{{ .Values.listeners.websocket.port }}</port>
            <bind-address>{{ .Values.bindAddress }}</bind-address>
            <path>{{ .Values.listeners.websocket.path }}</path>
            {{- include "troupemq.connectRate" . | nindent 12 }}
        </websocket-listener>
        {{- end }}
        {{- end }}
        {{- if .Values.tls.enabled }}
        <tls-tcp-listener>
            <port>{{ .Values.tls.mqttPort }}</port>
            <bind-address>{{ .Values.bindAddress }}</bind-address>
            {{- include "troupemq.connectRate" . | nindent 12 }}
            {{- include "troupemq.listenerTls" . | nindent 12 }}
        </tls-tcp-listener>
        <tls-websocket-listener>
            <port>{{ .Values.tls.websocketPort }}</port>
            <bind-address>{{ .Values.bindAddress }}</bind-address>
            <path>{{ .Values.listeners.websocket.path }}</path>
            {{- include "troupemq.connectRate" . | nindent 12 }}
            {{- include "troupemq.listenerTls" . | nindent 12 }}
        </tls-websocket-listener>
        {{- end }}
    </listeners>

    <!-- Metrics and the status page. -->
    <http>
        <port>{{ .Values.http.port }}</port>
        <bind-address>{{ .Values.bindAddress }}</bind-address>
    </http>
    {{- if .Values.prometheus.enabled }}
    <!-- Metrics alone, for Prometheus. -->
    <prometheus>
        <port>{{ .Values.prometheus.port }}</port>
        <bind-address>{{ .Values.bindAddress }}</bind-address>
        <metric-path>{{ .Values.prometheus.path }}</metric-path>
    </prometheus>
    {{- end }}
    <!-- What the probes ask. -->
    <health-api>
        <enabled>true</enabled>
        <listeners>
            <http>
                <port>{{ .Values.health.port }}</port>
                <bind-address>{{ .Values.bindAddress }}</bind-address>
            </http>
        </listeners>
    </health-api>

    <security>
        {{- if .Values.authentication.anonymous }}
        <allow-anonymous>
            <enabled>true</enabled>
        </allow-anonymous>
        {{- else }}
        <authentication>
            {{- if include "troupemq.hasUsers" . }}
            <!-- A Secret: credentials.xml and, where it is not to be HiveMQ's default, config.xml. -->
            <file-rbac>
                <folder>/etc/troupemq/users</folder>
            </file-rbac>
            {{- end }}
            {{- if .Values.authentication.clientCertificate.enabled }}
            <client-certificate>
                <user-name>{{ .Values.authentication.clientCertificate.userName }}</user-name>
            </client-certificate>
            {{- end }}
        </authentication>
        {{- end }}
    </security>

    <cluster>
        <enabled>true</enabled>
        <!-- The pod's name: the same at every start, whatever its address. -->
        <node-name>${POD_NAME}</node-name>
        <secret>${TROUPEMQ_CLUSTER_SECRET}</secret>
        <transport>
            <tcp>
                <bind-address>{{ .Values.bindAddress }}</bind-address>
                <bind-port>{{ .Values.cluster.port }}</bind-port>
                <!-- Resolved anew at each connect, in the pods' own namespace. -->
                <external-address>${POD_NAME}.{{ include "troupemq.fullname" . }}-peers</external-address>
                {{- if .Values.cluster.tls.enabled }}
                {{- include "troupemq.clusterTls" . | nindent 16 }}
                {{- end }}
            </tcp>
        </transport>
        <discovery>
            <extension>
                <address>{{ include "troupemq.fullname" . }}-peers</address>
            </extension>
        </discovery>
        <expected-nodes>${EXPECTED_NODES}</expected-nodes>
        {{- with .Values.cluster.shards }}
        <shards>{{ . }}</shards>
        {{- end }}
    </cluster>

    <!-- Below terminationGracePeriodSeconds. -->
    <shutdown>
        <delay>{{ .Values.shutdown.delaySeconds | int }}</delay>
        <clients-per-second>{{ .Values.shutdown.clientsPerSecond | int }}</clients-per-second>
        <timeout>{{ include "troupemq.stopSeconds" . }}</timeout>
    </shutdown>

    <persistence>
        <mode>file</mode>
    </persistence>

    <mqtt-addons>
        <expired-messages-topic>
            <enabled>{{ .Values.addons.expired }}</enabled>
        </expired-messages-topic>
        <dropped-messages-topic>
            <enabled>{{ .Values.addons.dropped }}</enabled>
        </dropped-messages-topic>
        <dead-messages-topic>
            <enabled>{{ .Values.addons.dead }}</enabled>
        </dead-messages-topic>
        <client-lifecycle-topic>
            <enabled>{{ .Values.addons.clientEvents }}</enabled>
        </client-lifecycle-topic>
    </mqtt-addons>
    {{- with .Values.extraConfig }}

    {{- . | trim | nindent 4 }}
    {{- end }}
</hivemq>
{{- end -}}

{{- define "troupemq.declared" -}}
<?xml version="1.0" encoding="UTF-8"?>
<declared-shared-subscriptions>
    {{- range .Values.declaredSharedSubscriptions }}
    <subscription>
        <share-name>{{ .shareName | html }}</share-name>
        <topic-filter>{{ .topicFilter | html }}</topic-filter>
    </subscription>
    {{- end }}
</declared-shared-subscriptions>
{{- end -}}
