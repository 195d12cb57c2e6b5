//! The configuration of each broker. Both let a client have 100 messages above QoS 0 in flight and queue a million for it, so that no limit of
//! the configuration decides a scene.

/// All four add-on topics.
pub const ADDONS: &str = "    <mqtt-addons>
        <expired-messages-topic><enabled>true</enabled></expired-messages-topic>
        <dropped-messages-topic><enabled>true</enabled></dropped-messages-topic>
        <dead-messages-topic><enabled>true</enabled></dead-messages-topic>
        <client-lifecycle-topic><enabled>true</enabled></client-lifecycle-topic>
    </mqtt-addons>
";

/// The embedded default on other ports; WebSocket left out as nothing connects there.
pub fn troupemq(port: u16, http_port: u16) -> String {
    format!(
        "<hivemq>
    <listeners>
        <tcp-listener>
            <port>{port}</port><bind-address>127.0.0.1</bind-address>
            <connect-overload-protection><enabled>false</enabled></connect-overload-protection>
        </tcp-listener>
    </listeners>
    <http><port>{http_port}</port><bind-address>127.0.0.1</bind-address></http>
    <mqtt>
        <receive-maximum><server-receive-maximum>100</server-receive-maximum></receive-maximum>
        <queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>
    </mqtt>
    <persistence><mode>file</mode></persistence>
{ADDONS}</hivemq>
"
    )
}

/// `user root` keeps a mosquitto that root starts from changing to a user who may not read its directory; others ignore it.
pub fn mosquitto(port: u16) -> String {
    format!(
        "listener {port} 127.0.0.1
user root
allow_anonymous true
persistence false
set_tcp_nodelay true
max_inflight_messages 100
max_queued_messages 1000000
log_dest stderr
log_type error
log_type warning
"
    )
}
