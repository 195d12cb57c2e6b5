//! Chapters of the protocol: what clients may do, how much, and where it is kept.

use super::row::{Chapter, Holds, hive, own};
use crate::config::limits::{PREVENTED_RULES_MAX, REFERENCE_LEN_MAX};

pub(super) const MQTT: Chapter = Chapter {
    title: "MQTT",
    base: "mqtt",
    intro: "What clients may do and ask for. MQTT 5 clients are told of it in CONNACK.",
    rows: &[
        hive("session-expiry/max-interval", "Longest Session Expiry Interval; a longer one is cut to it. 4,294,967,295: a session may stay for ever.").unit("s"),
        hive(
            "message-expiry/max-interval",
            "Longest Message Expiry Interval, also of messages that came with none. The default is no limit.",
        )
        .unit("s"),
        hive("packets/max-packet-size", "Largest MQTT packet that is taken.").unit("bytes"),
        hive("receive-maximum/server-receive-maximum", "QoS 1 and 2 messages that a client may have under way to the broker."),
        hive("keep-alive/max-keep-alive", "Longest Keep Alive: what the policy makes of it.").unit("s"),
        hive("keep-alive/allow-unlimited", "With `false`, a Keep Alive of 0 is replaced by the maximum (MQTT 5). Policy `hivemq` only."),
        own(
            "keep-alive/policy",
            "Whose way of changing the Keep Alive that a client asks for. `hivemq`: MQTT 5 gets the maximum for what is above it. `emqx`: every MQTT 5 \
             client gets `server-keep-alive`, if there is one. `mosquitto`: MQTT 5 gets the maximum for what is above it and for 0, MQTT 3 is refused \
             for that; without `max-keep-alive` nothing is changed.",
        ),
        own("keep-alive/server-keep-alive", "Policy `emqx` only.").unit("s").without("what the client asks for"),
        own("keep-alive/multiplier", "Keep Alives of silence before a connection is closed [MQTT-3.1.2-22].").without_it(|bare| {
            format!("`{}`", f64::from(bare.mqtt.keep_alive.multiplier_milli) / 1000.0)
        }),
        hive("topic-alias/enabled", "Topic Aliases from clients."),
        hive("topic-alias/max-per-client", "Topic Alias Maximum of the broker."),
        own("topic-alias/to-clients/enabled", "Topic Aliases towards clients that announce a Topic Alias Maximum."),
        own("topic-alias/to-clients/max-per-client", "Of those, the most that are used."),
        own(
            "response-information/template",
            "Response Information for clients that request it, such as `responses/${{clientid}}`; `${{clientid}}` stands for the client id.",
        )
        .holds(Holds::Says("the start of a topic name"))
        .without("none is given"),
        own("server-reference/reference", "Where clients are sent that cannot stay.")
            .holds(Holds::Computed(|| format!("host or host:port, several with spaces between: up to {REFERENCE_LEN_MAX} bytes")))
            .without("required in the section"),
        own("server-reference/at-shutdown", "A node that stops sends its clients there."),
        own(
            "server-reference/refuse-connections",
            "Which CONNECTs are answered with it: none; those that the node cannot serve now (0x9C); all, since the clients of this node are to move (0x9D).",
        ),
        hive("subscription-identifier/enabled", "Subscription Identifiers."),
        hive("wildcard-subscriptions/enabled", "Topic filters with `+` and `#`."),
        hive("shared-subscriptions/enabled", "`$share/...`."),
        hive("quality-of-service/max-qos", "Highest QoS of messages and subscriptions."),
        hive("retained-messages/enabled", "Retained messages."),
        own("retained-messages/max-messages", "Retained messages of the whole cluster, which every node has in memory."),
        own("retained-messages/max-bytes", "The same in bytes.").unit("bytes"),
        hive("queued-messages/max-queue-size", "QoS 1 and 2 messages that wait for one session, or for one shared subscription."),
        hive("queued-messages/strategy", "What goes when a queue is full: the message that comes, or the oldest. Both are told on `$dropped`."),
    ],
    example: "\
<mqtt>
  <session-expiry><max-interval>604800</max-interval></session-expiry>
  <message-expiry><max-interval>86400</max-interval></message-expiry>
  <packets><max-packet-size>1048576</max-packet-size></packets>
  <keep-alive>
    <policy>emqx</policy>
    <server-keep-alive>60</server-keep-alive>
    <multiplier>2</multiplier>
  </keep-alive>
  <response-information><template>responses/${{clientid}}</template></response-information>
  <server-reference><reference>mqtt-b.example.com:1883</reference></server-reference>
  <queued-messages>
    <max-queue-size>5000</max-queue-size>
    <strategy>discard-oldest</strategy>
  </queued-messages>
</mqtt>",
    mistakes: &[
        "<mqtt><keep-alive><server-keep-alive>60</server-keep-alive></keep-alive></mqtt>",
        "<mqtt><keep-alive><policy>emqx</policy><max-keep-alive>60</max-keep-alive></keep-alive></mqtt>",
        "<mqtt><keep-alive><policy>mosquitto</policy><allow-unlimited>false</allow-unlimited></keep-alive></mqtt>",
        "<mqtt><response-information><template>responses/+</template></response-information></mqtt>",
        "<mqtt><server-reference><at-shutdown>true</at-shutdown></server-reference></mqtt>",
        "<mqtt><queued-messages><strategy>drop</strategy></queued-messages></mqtt>",
    ],
};

pub(super) const RESTRICTIONS: Chapter = Chapter {
    title: "Restrictions",
    base: "restrictions",
    intro: "Bounds of a node and of its clients.",
    rows: &[
        hive("max-connections", "MQTT connections of this node. -1 and 0: no limit."),
        hive("max-client-id-length", "Longest client id.").unit("bytes"),
        hive("max-topic-length", "Longest topic name and topic filter.").unit("bytes"),
        hive("no-connect-idle-timeout", "A connection that sent no CONNECT for so long is closed.").unit("ms"),
        hive("incoming-bandwidth-throttling", "What the node reads from all clients together; 0: no limit.")
            .unit("bytes a second"),
        own("max-qos-0-memory", "QoS 0 messages that wait in the node; more are dropped and told on `$dropped`.")
            .unit("bytes")
            .without("a quarter of the node's memory"),
        own(
            "max-incomplete-packet-memory",
            "Packets of which not all has come, in the node; a client for whose packet there is no room is closed.",
        )
        .unit("bytes")
        .without("a quarter of the node's memory"),
        own("prevented-messages/inbound", "Messages that come and go to nobody; they are acknowledged, and told on `$dropped`.")
            .holds(Holds::Computed(|| format!("elements, {PREVENTED_RULES_MAX} times at most"))),
        own("prevented-messages/outbound", "Messages that are not sent to a client.")
            .holds(Holds::Computed(|| format!("elements, {PREVENTED_RULES_MAX} times at most"))),
        own("prevented-messages/*/topic-filter", "Topics of such messages.")
            .holds(Holds::Says("a topic filter without share"))
            .without("required"),
        own("prevented-messages/*/client-id", "Whose: of the publisher (inbound), of the receiver (outbound).")
            .without("any client"),
    ],
    example: "\
<restrictions>
  <max-connections>20000</max-connections>
  <max-client-id-length>64</max-client-id-length>
  <no-connect-idle-timeout>5000</no-connect-idle-timeout>
  <max-qos-0-memory>268435456</max-qos-0-memory>
  <prevented-messages>
    <inbound><topic-filter>debug/#</topic-filter></inbound>
    <outbound><topic-filter>internal/+/raw</topic-filter><client-id>dashboard</client-id></outbound>
  </prevented-messages>
</restrictions>",
    mistakes: &[
        "<restrictions><max-qos-0-memory>0</max-qos-0-memory></restrictions>",
        "<restrictions><prevented-messages><inbound><client-id>pump</client-id></inbound></prevented-messages></restrictions>",
        "<restrictions><prevented-messages><outbound><topic-filter>$share/g/a</topic-filter></outbound></prevented-messages></restrictions>",
    ],
};

pub(super) const PERSISTENCE: Chapter = Chapter {
    title: "Persistence and overload",
    base: "",
    intro: "",
    rows: &[
        hive(
            "persistence/mode",
            "Where sessions and messages are kept: on disk, or in memory alone, and then a node forgets them when it ends.",
        ),
        hive(
            "overload-protection/enabled",
            "Publishers are read more slowly, or not at all, while a node has more to do than it can.",
        ),
    ],
    example: "<persistence><mode>file</mode></persistence>",
    mistakes: &["<persistence><mode>disk</mode></persistence>"],
};

pub(super) const ADDONS: Chapter = Chapter {
    title: "Add-on topics",
    base: "mqtt-addons",
    intro: "Topics on which the broker tells what became of messages and clients; [addons.md](addons.md) has all of them. Each is off unless switched on.",
    rows: &[
        hive("expired-messages-topic/enabled", "`$expired/...`: messages that expired in a queue."),
        hive("dropped-messages-topic/enabled", "`$dropped/...`: messages that a receiver missed because of a limit."),
        hive("dead-messages-topic/enabled", "`$dead/...`: messages that nobody subscribes to."),
        hive("client-lifecycle-topic/enabled", "`$client-events/...`: clients that connect and disconnect."),
        hive(
            "client-lifecycle-topic/identifier/client-id",
            "The topic ends with the client id. Exactly one of the two stands in `identifier`.",
        )
        .without("this one, where there is no `identifier`"),
        hive("client-lifecycle-topic/identifier/username", "The topic ends with the user name."),
        hive("client-lifecycle-topic/triggers/client-connected", "Told when a client connects.")
            .without("told where there is no `triggers`"),
        hive(
            "client-lifecycle-topic/triggers/client-disconnected",
            "Told when a client disconnects; with elements inside, only for these. An empty one means all.",
        )
        .without("told where there is no `triggers`"),
        hive("client-lifecycle-topic/triggers/client-disconnected/client", "By the client."),
        hive("client-lifecycle-topic/triggers/client-disconnected/server", "By the broker."),
        hive(
            "client-lifecycle-topic/triggers/client-disconnected/session-taken-over",
            "Since the same client id connected elsewhere.",
        ),
        hive("client-lifecycle-topic/triggers/client-disconnected/unspecified", "The connection was lost."),
    ],
    example: "\
<mqtt-addons>
  <expired-messages-topic><enabled>true</enabled></expired-messages-topic>
  <dropped-messages-topic><enabled>true</enabled></dropped-messages-topic>
  <dead-messages-topic><enabled>true</enabled></dead-messages-topic>
  <client-lifecycle-topic>
    <enabled>true</enabled>
    <identifier><username/></identifier>
    <triggers>
      <client-connected/>
      <client-disconnected><server/><unspecified/></client-disconnected>
    </triggers>
  </client-lifecycle-topic>
</mqtt-addons>",
    mistakes: &[
        "<mqtt-addons><client-lifecycle-topic><triggers/></client-lifecycle-topic></mqtt-addons>",
        "<mqtt-addons><client-lifecycle-topic><identifier><client-id/><username/></identifier></client-lifecycle-topic></mqtt-addons>",
        "<mqtt-addons><client-lifecycle-topic><identifier/></client-lifecycle-topic></mqtt-addons>",
        "<mqtt-addons><dead-messages-topic><enabled>on</enabled></dead-messages-topic></mqtt-addons>",
    ],
};
