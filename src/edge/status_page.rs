//! The status page: one HTML document without script and without anything from elsewhere. Every text that comes from outside this
//! file goes through [`Escaped`].

use std::fmt::{self, Display, Formatter, Write};

use super::health::{ClusterHealth, HealthSource, ListenerHealth, Status};
use super::health_api;
use crate::telemetry::utc::Utc;
use crate::telemetry::{AddonCounter, IncomingPacket, Metrics, OutgoingPacket};

/// Renders the page.
pub(super) fn render(metrics: &Metrics, health: &dyn HealthSource) -> String {
    let mut page = String::with_capacity(12 * 1024);
    // Writing to a string does not fail.
    let _infallible = write_page(&mut page, metrics, health);
    page
}

fn write_page(page: &mut String, metrics: &Metrics, health: &dyn HealthSource) -> fmt::Result {
    let cluster = health.cluster();
    let node = Escaped(&cluster.node_name);
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"5\"><title>{node} - TroupeMQ</title>\
         <style>{STYLE}</style></head><body>\n<header><h1>TroupeMQ</h1><p>Node <strong>{node}</strong>, version {}</p>",
        env!("CARGO_PKG_VERSION"),
    )?;
    write_readiness(page, &cluster, health)?;
    page.push_str("</header>\n<main>\n");
    write_counters(page, metrics)?;
    write_listeners(page, &health.mqtt().listeners)?;
    write_nodes(page, &cluster)?;
    write_groups(page, &cluster)?;
    page.push_str(
        "</main>\n<footer><a href=\"metrics\">Metrics</a> <a href=\"api/v1/health/\">Health</a> \
         <a href=\"api/v1/health/readiness\">Readiness</a> <a href=\"api/v1/health/liveness\">Liveness</a> \
         <span>Reloads every 5 seconds.</span></footer>\n</body></html>\n",
    );
    Ok(())
}

fn write_readiness(page: &mut String, cluster: &ClusterHealth, health: &dyn HealthSource) -> fmt::Result {
    let status = health_api::readiness(health);
    let words = match status {
        Status::Up => "Ready for clients",
        Status::Down if health.draining_since_ms().is_some() => "Shutting down",
        Status::Down => "Not ready",
    };
    write!(page, "<p>{} {words}", Badge(status))?;
    if let Some(waiting) = cluster.waiting.as_ref().or(health.mqtt().waiting.as_ref()) {
        write!(page, ": waits for {} since {}", Escaped(&waiting.what), utc(waiting.since_ms))?;
    }
    page.push_str("</p>");
    let load = health.load();
    if let Some(cause) = load.cause {
        write!(page, "<p>Overload level {}: {}, since {}</p>", load.level, Escaped(cause), utc(load.since_ms))?;
    }
    Ok(())
}

fn write_counters(page: &mut String, metrics: &Metrics) -> fmt::Result {
    let hivemq = &metrics.hivemq;
    let tiles = [
        ("Connections", hivemq.connections_current.get()),
        ("Sessions", hivemq.sessions_current.get()),
        ("Subscriptions", hivemq.subscriptions_current.get()),
        ("Retained messages", hivemq.retained_current.get()),
        ("Queued messages", hivemq.queued_current.get()),
        ("PUBLISH in", metrics.received_count(IncomingPacket::Publish)),
        ("PUBLISH out", metrics.sent_count(OutgoingPacket::Publish)),
        ("Dropped", metrics.addon_count(AddonCounter::Dropped)),
        ("Expired", metrics.addon_count(AddonCounter::Expired)),
        ("Dead", metrics.addon_count(AddonCounter::Dead)),
    ];
    page.push_str("<section class=\"tiles\">");
    for (name, value) in tiles {
        write!(page, "<div><b>{}</b><span>{name}</span></div>", Grouped(value))?;
    }
    page.push_str("</section>\n");
    Ok(())
}

fn write_listeners(page: &mut String, listeners: &[ListenerHealth]) -> fmt::Result {
    open_table(page, "Listeners", &["Name", "Address", "Port", "State"])?;
    for listener in listeners {
        write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Escaped(&listener.name),
            Escaped(&listener.bind_address),
            listener.port,
            Badge(Status::of(listener.running)),
        )?;
    }
    close_table(page);
    Ok(())
}

fn write_nodes(page: &mut String, cluster: &ClusterHealth) -> fmt::Result {
    open_table(page, "Cluster nodes", &["Name", "Address", "State"])?;
    for node in &cluster.nodes {
        let alive = Badge(Status::of(node.alive));
        write!(page, "<tr><td>{}</td><td>{}</td><td>{alive}</td></tr>", Escaped(&node.name), Escaped(&node.address))?;
    }
    close_table(page);
    if let Some(id) = &cluster.cluster_id {
        writeln!(page, "<p class=\"note\">Cluster id {}</p>", Escaped(id))?;
    }
    Ok(())
}

fn write_groups(page: &mut String, cluster: &ClusterHealth) -> fmt::Result {
    open_table(page, "Raft groups", &["Group", "Leader", "Term", "Applied", "Log", "Voters"])?;
    for group in &cluster.groups {
        write!(page, "<tr><td>{}</td><td>", Escaped(&group.name))?;
        match &group.leader {
            Some(leader) => write!(page, "{}", Escaped(leader))?,
            None => write!(page, "{} none", Badge(Status::Down))?,
        }
        write!(page, "</td><td>{}</td><td>{}</td><td>{}</td>", group.term, group.applied_index, group.last_log_index)?;
        write!(page, "<td>{}</td></tr>", Escaped(&group.voters.join(", ")))?;
    }
    close_table(page);
    Ok(())
}

fn open_table(page: &mut String, title: &str, columns: &[&str]) -> fmt::Result {
    write!(page, "<section><h2>{title}</h2><table><thead><tr>")?;
    for column in columns {
        write!(page, "<th scope=\"col\">{column}</th>")?;
    }
    page.push_str("</tr></thead><tbody>");
    Ok(())
}

fn close_table(page: &mut String) {
    page.push_str("</tbody></table></section>\n");
}

/// Text as HTML, in content as well as in quoted attributes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

struct Badge(Status);

impl Display for Badge {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let class = match self.0 {
            Status::Up => "up",
            Status::Down => "down",
        };
        write!(f, "<span class=\"badge {class}\">{}</span>", self.0.text())
    }
}

/// A number with its digits in groups of three.
struct Grouped(i64);

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = self.0.unsigned_abs().to_string();
        if self.0 < 0 {
            f.write_char('-')?;
        }
        for (n, digit) in digits.chars().enumerate() {
            if n > 0 && (digits.len() - n).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

/// A moment, ms since the epoch, as `2025-08-28 10:40:00 UTC`.
fn utc(ms: u64) -> String {
    format!("{} UTC", Utc::of(ms / 1000).for_log())
}

const STYLE: &str = include_str!("status_page.css");

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    #[test]
    fn every_text_from_outside_is_escaped() {
        let evil = "<script>alert('\"&')</script>";
        let fixture = Fixture::named(evil);
        let page = render(&Metrics::new().unwrap(), &fixture);
        assert!(!page.contains("<script"));
        assert!(!page.contains("alert('"));
        // Node name twice, listener name and address, member name and address, group, leader, voters, cluster id, what is awaited.
        assert_eq!(page.matches("&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;").count(), 11);
    }

    #[test]
    fn the_page_is_self_contained() {
        let page = render(&Metrics::new().unwrap(), &Fixture::ready());
        for absent in ["http://", "https://", "<script", "<img", "<link", "src=", "url(", "@import"] {
            assert!(!page.contains(absent), "{absent}");
        }
        assert!(page.contains("<meta http-equiv=\"refresh\" content=\"5\">"));
        assert!(page.contains("href=\"metrics\"") && page.contains("href=\"api/v1/health/\""));
    }

    #[test]
    fn readiness_is_told_in_words_with_what_is_awaited() {
        let metrics = Metrics::new().unwrap();
        assert!(render(&metrics, &Fixture::ready()).contains("Ready for clients"));
        let waiting = render(&metrics, &Fixture::waiting());
        assert!(waiting.contains("Not ready: waits for a majority of 3 nodes since 2025-08-28 10:40:00 UTC"), "{waiting}");
        assert!(render(&metrics, &Fixture::draining()).contains("Shutting down"));
    }

    #[test]
    fn counters_and_groups_are_shown() {
        let metrics = Metrics::new().unwrap();
        metrics.hivemq.sessions_current.set(1_234_567);
        let page = render(&metrics, &Fixture::ready());
        assert!(page.contains("<b>1,234,567</b><span>Sessions</span>"));
        assert!(page.contains("<td>meta</td><td>node-1</td><td>4</td><td>120</td><td>121</td><td>node-1, node-2</td>"));
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (-12_345, "-12,345"), (100_000, "100,000")] {
            assert_eq!(Grouped(number).to_string(), text);
        }
    }

    #[test]
    fn moments_are_dates_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_756_377_600_000, "2025-08-28 10:40:00 UTC"),
            (1_735_689_599_000, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
