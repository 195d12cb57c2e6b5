//! `<http>`, and the HTTP listeners of `<rest-api>`, `<health-api>` and `<control-center>` (spec/hivemq.md 1.8).

use std::net::Ipv4Addr;

use super::exposure::Bound;
use super::listeners::Names;
use super::view::View;
use crate::config::settings::{HttpListenerKind, HttpListenerSettings};

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
        settings.push(HttpListenerSettings { kind, name, bind_address, port });
    }
    settings
}
