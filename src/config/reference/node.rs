//! Chapters of the node: its cluster, its HTTP, how it stops, what it writes.

use super::row::{Chapter, Holds, hive, own};
use crate::config::limits::{HEARTBEATS_PER_ELECTION_MIN, NAME_LEN_MAX, SECRET_LEN_MIN};

pub(super) const CLUSTER: Chapter = Chapter {
    title: "Cluster",
    base: "cluster",
    intro: "Nodes that replicate sessions and messages. Start each with the same `secret`, `shards` and `mqtt`, `security`, `restrictions`, `mqtt-addons`; where nodes differ in these, \
            their logs and `troupemq cluster status` say so. `config/cluster/` has three nodes for one machine, [kubernetes.md](kubernetes.md) has pods.",
    rows: &[
        hive("enabled", "The node is one of a cluster."),
        own("node-name", "Another one on every node, and the same at every start: data belongs to it.")
            .holds(Holds::Computed(|| format!("up to {NAME_LEN_MAX} letters, digits, `.`, `_`, `-`")))
            .without_it(|bare| format!("the variable `HOSTNAME`; of a node alone `{}`", bare.cluster.node_name)),
        own("secret", "What nodes know each other by; the same on all of them.")
            .holds(Holds::Computed(|| format!("{SECRET_LEN_MIN} characters or more")))
            .without("required in a cluster"),
        hive("transport/*/bind-address", "The address that other nodes reach this one at.")
            .holds(Holds::Address)
            .without_it(|bare| format!("`{}`", bare.cluster.bind_address)),
        hive("transport/*/bind-port", "The port for it."),
        hive("transport/*/external-address", "What other nodes are told instead of the bind address.")
            .holds(Holds::Word("a name or an address"))
            .without("the bind address, or the node name where that stands for all addresses"),
        hive("transport/*/external-port", "The same for the port.").without("the bind port"),
        hive("transport/udp", "The same elements as `tcp`, in its place."),
        hive("transport/udp/multicast-enabled", ""),
        hive("transport/udp/multicast-address", "").without("none"),
        hive("transport/udp/multicast-port", "").without("none"),
        hive("transport/*/tls", "TLS between nodes."),
        hive("discovery/static/node", "Every node that founds the cluster, this one too; for a node that joins, one that is there is enough.")
            .without("at least one, or `discovery/extension`"),
        hive("discovery/static/node/host", "Its name or address.").holds(Holds::Word("a host name or an IP address")).without("required"),
        hive("discovery/static/node/port", "Its cluster port.").without("required"),
        hive("discovery/multicast", "Discovery by multicast."),
        hive("discovery/broadcast", "Discovery by broadcast."),
        hive("discovery/extension", "HiveMQ's DNS discovery: each address of a name is a node, with this node's own cluster port.").without("none"),
        own("discovery/extension/address", "The name, such as that of a headless service.")
            .holds(Holds::Word("a DNS name"))
            .without("the variable `HIVEMQ_DNS_DISCOVERY_ADDRESS`"),
        own("discovery/extension/resolution-timeout", "How long an answer is waited for. The variable `HIVEMQ_DNS_DISCOVERY_TIMEOUT` stands in for it.").unit("s"),
        own("discovery/extension/reload-interval", "How often is asked. The variables `HIVEMQ_DNS_RELOAD_INTERVAL` and `HIVEMQ_DNS_DISCOVERY_INTERVAL` stand in for it.")
            .unit("s"),
        own("expected-nodes", "How many nodes found the cluster; 0: this one founds none. To be said where they are found by DNS, which does not know.")
            .without("as many as `discovery/static` lists"),
        hive("replication/replica-count", "Copies of everything."),
        hive("failure-detection", "HiveMQ's ways to see that a node is gone."),
        hive("failure-detection/heartbeat/enabled", ""),
        hive("failure-detection/heartbeat/interval", "").unit("ms"),
        hive("failure-detection/heartbeat/timeout", "").unit("ms"),
        hive("failure-detection/tcp-health-check/enabled", ""),
        hive("failure-detection/tcp-health-check/bind-address", "").without("none"),
        hive("failure-detection/tcp-health-check/bind-port", "").without("none"),
        hive("failure-detection/tcp-health-check/port-range", ""),
        hive("failure-detection/tcp-health-check/external-address", "").without("none"),
        hive("failure-detection/tcp-health-check/external-port", "").without("none"),
        hive("overload-protection/enabled", "As `overload-protection` beside `cluster`, from old files."),
        own("shards", "Groups that sessions are spread over. Fixed when the cluster is founded; a node with another number is refused. \
             Without the element a node that has data goes on with the number they have."),
        own("raft/heartbeat-interval", "How often leaders are heard of.").unit("ms"),
        own("raft/election-timeout-min", "A node that heard nothing of a leader for so long stands for election.")
            .holds(Holds::Computed(|| format!("at least {HEARTBEATS_PER_ELECTION_MIN} heartbeats")))
            .unit("ms"),
        own("raft/election-timeout-max", "At the latest then: each time is drawn between the two.")
            .holds(Holds::Says("above the minimum"))
            .unit("ms"),
        own("close-clients-without-majority-after", "A node that has no majority for so long closes its clients (0x89).").unit("ms"),
        own("transport/*/tls/enabled", "Whether the nodes speak TLS with each other; see [node-tls.md](node-tls.md)."),
        own(
            "transport/*/tls/hostname-verification",
            "The certificate of a node has to be for the name of that node. `false`: any that the trust store is behind will do.",
        ),
        own(
            "transport/*/tls/optional",
            "Connections without TLS are taken too, and made to nodes that have nothing else: for the time of a change.",
        ),
    ],
    example: "\
<cluster>
  <enabled>true</enabled>
  <node-name>mqtt-a</node-name>
  <secret>${TROUPEMQ_CLUSTER_SECRET}</secret>
  <transport>
    <tcp>
      <bind-address>10.0.0.1</bind-address>
      <bind-port>7000</bind-port>
    </tcp>
  </transport>
  <discovery>
    <static>
      <node><host>10.0.0.1</host><port>7000</port></node>
      <node><host>10.0.0.2</host><port>7000</port></node>
      <node><host>10.0.0.3</host><port>7000</port></node>
    </static>
  </discovery>
</cluster>",
    mistakes: &[
        "<cluster><enabled>true</enabled><node-name>a</node-name><secret>0123456789abcdef</secret></cluster>",
        "<cluster><enabled>true</enabled><node-name>a</node-name><secret>hunter2</secret><discovery><extension><address>nodes</address></extension></discovery></cluster>",
        "<cluster><enabled>true</enabled><secret>0123456789abcdef</secret><discovery><extension><address>nodes</address></extension></discovery></cluster>",
        "<cluster><enabled>true</enabled><node-name>a</node-name><secret>0123456789abcdef</secret><discovery><extension/></discovery></cluster>",
        "<cluster><discovery><static><node><host>10.0.0.1:7000</host><port>7000</port></node></static></discovery></cluster>",
        "<cluster><transport><tcp/><udp/></transport></cluster>",
        "<cluster><raft><heartbeat-interval>500</heartbeat-interval></raft></cluster>",
        "<cluster><raft><election-timeout-max>600</election-timeout-max></raft></cluster>",
    ],
};

pub(super) const SHUTDOWN: Chapter = Chapter {
    title: "Shutdown",
    base: "shutdown",
    intro: "How a node that is told to stop, or to drain, parts from its clients.",
    rows: &[
        own("delay", "Between not being ready, for a load balancer to see, and the closing of anything. Below the timeout, which includes it.").unit("s"),
        own("clients-per-second", "Clients that are told in a second; more where they would not all be told in time."),
        own("timeout", "From the signal to the end of the process. Kubernetes kills after 30 s unless told otherwise.").unit("s"),
    ],
    example: "\
<shutdown>
  <delay>5</delay>
  <clients-per-second>500</clients-per-second>
  <timeout>60</timeout>
</shutdown>",
    mistakes: &["<shutdown><delay>30</delay></shutdown>"],
};

pub(super) const EVENT_LOG: Chapter = Chapter {
    title: "Event log",
    base: "event-log",
    intro: "`event.log`, in HiveMQ's format: [access.md](access.md).",
    rows: &[
        own("enabled", "It is written."),
        own("folder", "Where it is.")
            .holds(Holds::File("a folder"))
            .without("the variable `HIVEMQ_LOG_FOLDER`, or `log` in the data directory"),
        own("max-file-size", "A file that would be larger gets a number, and a new one begins.").unit("bytes"),
        own("max-files", "Files that are kept beside the one that grows."),
    ],
    example: "\
<event-log>
  <folder>/var/log/troupemq</folder>
  <max-file-size>10485760</max-file-size>
  <max-files>10</max-files>
</event-log>",
    mistakes: &["<event-log><max-file-size>1024</max-file-size></event-log>"],
};

pub(super) const HTTP: Chapter = Chapter {
    title: "Metrics, health and other HTTP",
    base: "",
    intro: "Every HTTP listener serves metrics, health and the status page. Nobody is asked for a password there, so other machines are let in only where a \
            `bind-address` says so. Without a listener all of it is off.",
    rows: &[
        own("http/port", "0 takes any free port."),
        own("http/bind-address", "The address of this machine to listen on.")
            .holds(Holds::Address)
            .without_it(|bare| bare.http.first().map(|listener| format!("`{}`", listener.bind_address)).unwrap_or_default()),
        own("http/name", "What log and metrics call it.").holds(Holds::Word("a name")).without_it(|bare| {
            bare.http.first().map(|listener| format!("with its port: `{}`", listener.name)).unwrap_or_default()
        }),
        hive("rest-api", "HiveMQ's REST API."),
        hive("rest-api/enabled", "Its listeners are opened."),
        hive("rest-api/auth", "Permissions for it."),
        hive("rest-api/auth/enabled", ""),
        hive("health-api/enabled", "Its listeners are opened; HiveMQ's paths are served."),
        own("prometheus/enabled", "A port of its own for metrics is opened, as HiveMQ's Prometheus extension does."),
        own("prometheus/port", "0 takes any free port."),
        own("prometheus/bind-address", "The address of this machine to listen on.").holds(Holds::Address).without("`127.0.0.1`"),
        own("prometheus/metric-path", "Where the metrics are, beside `/metrics` and `/`.").without("`/metrics`"),
        hive("control-center", "HiveMQ's control center."),
        hive("control-center/enabled", "Its listeners are opened."),
        hive("control-center/users", "Its users."),
        hive("*/listeners/http", "A listener of that API.").without("none"),
        hive("*/listeners/http/port", "0 takes any free port."),
        hive("*/listeners/http/bind-address", "The address of this machine to listen on.")
            .holds(Holds::Address)
            .without_it(|bare| bare.http.first().map(|listener| format!("`{}`", listener.bind_address)).unwrap_or_default()),
        hive("*/listeners/http/name", "What log and metrics call it.").holds(Holds::Word("a name")).without_it(|bare| {
            bare.http.first().map(|listener| format!("with its port: `{}`", listener.name)).unwrap_or_default()
        }),
        hive("*/listeners/https", "A listener with TLS."),
    ],
    example: "\
<http>
  <port>8080</port>
  <bind-address>127.0.0.1</bind-address>
</http>",
    mistakes: &[
        "<http><port>8080</port><bind-address>*</bind-address></http>",
        "<http><port>1883</port></http>",
        "<rest-api><enabled>true</enabled><listeners><https><port>8888</port></https></listeners></rest-api>",
    ],
};

pub(super) const IGNORED: Chapter = Chapter {
    title: "Taken without effect",
    base: "",
    intro: "For HiveMQ's files to load as they are.",
    rows: &[
        hive("anonymous-usage-statistics", "HiveMQ's statistics."),
        hive("anonymous-usage-statistics/enabled", ""),
        hive("client-event-history", "HiveMQ's history of clients; `$client-events` and `event.log` tell of them here."),
        hive("client-event-history/enabled", ""),
        hive("client-event-history/lifetime", "").unit("s"),
        hive("data-hub", "HiveMQ's Data Hub."),
        hive("internal", "HiveMQ's internal options."),
    ],
    example: "<anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>",
    mistakes: &[],
};
