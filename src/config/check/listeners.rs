//! `<listeners>` (spec/hivemq.md 1.3).

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::exposure::Bound;
use super::tls;
use super::view::View;
use crate::config::settings::{ClientAuthentication, ConnectOverload, ListenerKind, ListenerSettings};

const DEFAULT_PATH: &str = "/mqtt";
const DEFAULT_SUBPROTOCOLS: [&str; 2] = ["mqttv3.1", "mqtt"];
/// Connections per second where the file says nothing, as HiveMQ has it.
const DEFAULT_CONNECT_RATE: f64 = 500.0;

pub(super) fn read<'a>(root: &View<'a>, bound: &mut Vec<Bound<'a>>) -> Vec<ListenerSettings> {
    let listeners = root.at("listeners");
    let mut views: Vec<(View<'_>, ListenerKind, bool)> = Vec::new();
    for (name, secure) in [("tcp-listener", false), ("tls-tcp-listener", true)] {
        views.extend(listeners.all(name).into_iter().map(|view| (view, ListenerKind::Tcp, secure)));
    }
    for (name, secure) in [("websocket-listener", false), ("tls-websocket-listener", true)] {
        views.extend(listeners.all(name).into_iter().map(|view| {
            let kind = websocket(&view);
            (view, kind, secure)
        }));
    }
    views.sort_by_key(|(view, ..)| view.line());
    if views.is_empty() {
        listeners.error(
            "no listener is configured; add <listeners><tcp-listener><port>1883</port><bind-address>127.0.0.1</bind-address>\
             </tcp-listener></listeners>",
        );
    }

    let mut names = Names::default();
    let mut settings = Vec::new();
    for (view, kind, secure) in views {
        let bind_address = view.address("bind-address", Ipv4Addr::UNSPECIFIED);
        if !view.at("port").exists() {
            view.error("the element <port> is missing; add <port>1883</port>, or 0 for any free port");
        }
        // 0 also stands for a port that is missing or wrong, which has been reported.
        let port = view.u16("port").unwrap_or(0);
        let default_name = match (&kind, secure) {
            (ListenerKind::Tcp, false) => format!("tcp-listener-{port}"),
            (ListenerKind::Tcp, true) => format!("tls-tcp-listener-{port}"),
            (ListenerKind::WebSocket { .. }, false) => format!("websocket-listener-{port}"),
            (ListenerKind::WebSocket { .. }, true) => format!("tls-websocket-listener-{port}"),
        };
        let name = names.unique(&view, default_name);
        let tls = if secure { tls::read(&view).map(Arc::new) } else { None };
        let proxy_protocol = view.flag("proxy-protocol");
        let connect_overload = connect_overload(&view);
        let certified = tls.as_ref().is_some_and(|tls| tls.client_authentication == ClientAuthentication::Required);
        bound.push(Bound { element: view, address: bind_address, port, mqtt: !certified });
        settings.push(ListenerSettings { kind, name, bind_address, port, tls, proxy_protocol, connect_overload });
    }
    settings
}

/// On unless switched off, also where the element is absent (spec/hivemq.md 1.3).
fn connect_overload(view: &View<'_>) -> Option<ConnectOverload> {
    let view = view.at("connect-overload-protection");
    view.flag("enabled").then(|| {
        let rate = view.rate("connect-rate").unwrap_or(DEFAULT_CONNECT_RATE);
        let burst = view.number("connect-burst-size").map_or(2.0 * rate, |burst| burst as f64);
        ConnectOverload { rate, burst: burst.max(1.0) }
    })
}

fn websocket(view: &View<'_>) -> ListenerKind {
    let path = view.word("path").unwrap_or(DEFAULT_PATH);
    if !path.starts_with('/') || path.contains(['?', '#']) {
        let found = view.at("path").quote(path);
        view.at("path").error(format!(
            "found {found}; allowed: a path that starts with / and has no ? or #; write <path>{DEFAULT_PATH}</path>"
        ));
    }
    let list = view.at("subprotocols");
    let mut subprotocols = Vec::new();
    for item in list.all("subprotocol") {
        // RFC 6455 4.1: a token of printable ASCII without separators.
        match item.own_text() {
            Some(text) if text.bytes().all(|b| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b)) => {
                subprotocols.push(text.to_owned());
            }
            other => {
                let found = item.quote(other.unwrap_or_default());
                item.error(format!("found {found}; allowed: a subprotocol name such as mqtt; correct it or remove the element"));
            }
        }
    }
    if subprotocols.is_empty() {
        if list.exists() && !list.has_children() {
            list.warning(format!("found no <subprotocol>; {} are used", DEFAULT_SUBPROTOCOLS.join(" and ")));
        }
        subprotocols = DEFAULT_SUBPROTOCOLS.map(str::to_owned).to_vec();
    }
    ListenerKind::WebSocket { path: path.to_owned(), subprotocols }
}

/// Names in use; a second `x` becomes `x-1`, a third `x-2`.
#[derive(Default)]
pub(super) struct Names {
    used: HashSet<String>,
    /// How often a name has come, so that many equal ones need no search from the start.
    count: HashMap<String, u32>,
}

impl Names {
    pub(super) fn unique(&mut self, view: &View<'_>, default_name: String) -> String {
        let wanted = view.word("name").map_or(default_name, str::to_owned);
        let count = self.count.entry(wanted.clone()).or_insert(0);
        let mut name = wanted.clone();
        while !self.used.insert(name.clone()) {
            *count += 1;
            name = format!("{wanted}-{count}");
        }
        if name != wanted {
            let (number, is_placed) = (*count, view.at("name").is_placed());
            view.warning(if is_placed {
                format!("found a second listener of this name; it is called by it with -{number} behind it")
            } else {
                format!("found a second listener named {wanted}; it is called {name}")
            });
        }
        name
    }
}
