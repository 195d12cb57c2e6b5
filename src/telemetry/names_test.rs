//! Each name that HiveMQ's metrics are known by (spec/hivemq.md 5.1 and 5.2) is served, or docs/monitoring.md says why not.

use super::naming::prometheus_name;
use super::{AddonCounter, Metrics};

const GUIDE: &str = include_str!("../../docs/monitoring.md");

/// Below `com.hivemq.`; words in braces are one after the other. A name that ends in `*` stands for those that nobody wrote down.
const NAMES: &[&str] = &[
    "messages.incoming.{auth,connect,connect.mqtt3,connect.mqtt5,disconnect,pingreq,puback,pubcomp,publish,pubrec,pubrel,subscribe,total,unsubscribe}.count",
    "messages.outgoing.{auth,connack,disconnect,pingresp,puback,pubcomp,publish,pubrec,pubrel,suback,total,unsuback}.count",
    "messages.incoming.{total,publish,connect}.rate",
    "messages.outgoing.{total,publish,connect}.rate",
    "messages.incoming.{publish,total}.bytes",
    "messages.outgoing.{publish,total}.bytes",
    "messages.dropped.count",
    "messages.dropped.{queue-full,qos-0-memory-exceeded,not-writable,message-too-large,mqtt-packet-too-large,publish-inbound-intercepted,internal-error}.count",
    "messages.{queued.count,pending.total.count,pending.qos-0.count}",
    "messages.retained.{current,pending.total.count,queued.count,mean}",
    "messages.will.{count.current,published.count.total}",
    "publish.without-matching-subscribers",
    "keep-alive.disconnect.count",
    "networking.bytes.{read,write}.total",
    "networking.bytes.{read,write}.current",
    "networking.connections.{current,mean}",
    "networking.connections-closed.{graceful,ungraceful,total}.count",
    "subscriptions.overall.current",
    "sessions.{overall.current,persistent.active}",
    "mqtt.connection.not-writable.current",
    "persistence.{retained-messages,client-session.subscriptions,client-sessions,queued-messages}.in-memory.total-size",
    "persistence.executor.*",
    "qos-0-memory.{used,max,exceeded.per-client}",
    "topic-alias.{count.total,memory.usage}",
    "overload-protection.{level,credits.per-tick,clients.average-credits,clients.using-credits,clients.backpressure-active}",
    "cluster.{nodes.count,name-request.retry.count,topology-change.time}",
    "cpu-cores.{licensed,used}",
    "jvm.memory.heap.{init,max,used}",
    "jvm.garbage-collector.*",
    "system.os.global.{cpu.total.total,memory.total,memory.available}",
    "system.os.disks.*",
    "system.os.network-interface.*",
    "extensions.file-rbac.hash.*",
    "dns-cluster-discovery-extension.{query.success.count,query.failed.count,resolved-addresses}",
];

fn names() -> Vec<String> {
    let mut names = Vec::new();
    for name in NAMES {
        match name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            Some((before, (words, after))) => {
                names.extend(words.split(',').map(|word| format!("com.hivemq.{before}{word}{after}")));
            }
            None => names.push(format!("com.hivemq.{name}")),
        }
    }
    names.extend(AddonCounter::ALL.iter().map(|counter| counter.name().to_owned()));
    names
}

/// The first column of the table of those that are not served.
fn left_out() -> Vec<&'static str> {
    let (_, table) = GUIDE.split_once("| Not served | Why |\n").expect("the table of what is not served");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1)).flat_map(|names| names.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_name_of_hivemqs_is_served_or_the_guide_says_why_not() {
    let text = Metrics::new().unwrap().encode();
    let left_out = left_out();
    let names = names();
    assert!(names.len() > 90 && !left_out.is_empty(), "{}: {left_out:?}", names.len());
    for name in &names {
        let series = prometheus_name(name);
        let is_served = text.contains(&format!("# TYPE {series} ")) || text.contains(&format!("# TYPE {series}_total counter\n"));
        let is_left_out = left_out.contains(&name.as_str());
        assert!(is_served != is_left_out, "{name}: served {is_served}, left out by the guide {is_left_out}");
    }
    for name in left_out {
        assert!(names.iter().any(|known| known == name), "the guide leaves out {name}, which HiveMQ is not known to have");
    }
}

#[test]
fn summaries_have_hivemqs_quantiles() {
    let metrics = Metrics::new().unwrap();
    metrics.received_bytes(true, 10);
    metrics.received_bytes(false, 2);
    metrics.see_retained(2, 300);
    metrics.tick(1_000);
    let text = metrics.encode();
    for line in [
        "# TYPE com_hivemq_messages_incoming_publish_bytes summary",
        "com_hivemq_messages_incoming_publish_bytes{quantile=\"0.5\"} 10",
        "com_hivemq_messages_incoming_publish_bytes{quantile=\"0.999\"} 10",
        "com_hivemq_messages_incoming_publish_bytes_count 1",
        "com_hivemq_messages_incoming_total_bytes_count 2",
        "com_hivemq_messages_outgoing_total_bytes_count 0",
        "com_hivemq_messages_retained_mean{quantile=\"0.75\"} 150",
        "com_hivemq_messages_retained_current 2",
        "com_hivemq_networking_connections_mean_count 1",
        "com_hivemq_cluster_topology_change_time_count 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
}
