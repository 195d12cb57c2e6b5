//! `<http>`, the HTTP listeners of `<rest-api>`, `<health-api>` and `<control-center>` (spec/hivemq.md 1.8), and `<prometheus>`: what
//! HiveMQ's Prometheus extension has in a file of its own (`ip`, `port`, `metric_path`; spec/hivemq.md 5.3), off where the element is absent.

use std::net::Ipv4Addr;

use super::exposure::Bound;
use super::listeners::Names;
use super::view::View;
use crate::config::settings::{HttpListenerKind, HttpListenerSettings};

/// Where Prometheus looks if it is not told otherwise.
pub(super) const METRIC_PATH: &str = "/metrics";

pub(super) fn read<'a>(root: &View<'a>, bound: &mut Vec<Bound<'a>>) -> Vec<HttpListenerSettings> {
    let mut views: Vec<(View<'_>, HttpListenerKind)> = Vec::new();
    views.extend(root.all("http").into_iter().map(|view| (view, HttpListenerKind::Http)));
    for (api, kind) in [
        ("rest-api", HttpListenerKind::RestApi),
        ("health-api", HttpListenerKind::HealthApi),
        ("control-center", HttpListenerKind::ControlCenter),
    ] {
        let api = root.at(api);
        if !api.exists() || !api.flag("enabled") {
            continue;
        }
        let listeners = api.at("listeners");
        if kind != HttpListenerKind::ControlCenter && !listeners.has_children() {
            api.warning("is enabled and has no listener; add <listeners><http><port>..</port></http></listeners>");
        }
        views.extend(listeners.all("http").into_iter().map(|view| (view, kind)));
    }

    let mut names = Names::default();
    let mut settings = Vec::new();
    for (view, kind) in views {
        // Nobody is asked for a password here, so other machines are let in only where the file says so.
        let bind_address = view.address("bind-address", Ipv4Addr::LOCALHOST);
        let port = view.u16_or_max("port");
        let name = names.unique(&view, format!("http-listener-{port}"));
        bound.push(Bound { element: view, address: bind_address, port, mqtt: false });
        settings.push(HttpListenerSettings { kind, name, bind_address, port, metric_path: METRIC_PATH.to_owned() });
    }
    settings.extend(prometheus(root, bound));
    settings
}

fn prometheus<'a>(root: &View<'a>, bound: &mut Vec<Bound<'a>>) -> Option<HttpListenerSettings> {
    let view = root.at("prometheus");
    if !view.exists() || !view.flag("enabled") {
        return None;
    }
    let path = view.word("metric-path").unwrap_or(METRIC_PATH);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    if !path.starts_with('/') || !path.chars().all(is_plain) {
        let element = view.at("metric-path");
        let found = element.quote(path);
        element.error(format!(
            "found {found}; allowed: a path that starts with / and has letters, digits and /-._~ in it; write \
             <metric-path>{METRIC_PATH}</metric-path>"
        ));
    }
    // As above: metrics tell no secrets, but a good deal of the business.
    let bind_address = view.address("bind-address", Ipv4Addr::LOCALHOST);
    let port = view.u16_or_max("port");
    bound.push(Bound { element: view, address: bind_address, port, mqtt: false });
    let (name, metric_path) = (format!("prometheus-listener-{port}"), path.to_owned());
    Some(HttpListenerSettings { kind: HttpListenerKind::Metrics, name, bind_address, port, metric_path })
}
