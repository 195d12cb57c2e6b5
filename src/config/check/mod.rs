//! Third step: holds the document against the rules, fills in defaults, says what it replaced, and gives the settings.

mod addons;
mod authentication;
mod cluster;
mod environment;
mod event_log;
mod exposure;
mod http;
mod jwt;
mod keep_alive;
mod listeners;
pub(super) mod notices;
mod prevented;
mod protocol;
mod response;
pub(super) mod rules;
mod shape;
mod shutdown;
mod tls;
mod unstable;
pub(super) mod value;
pub(super) mod variables;
mod view;

use super::diagnostic::Report;
use super::entity::Element;
use super::settings::{PersistenceMode, Settings};
pub(super) use authentication::{EXTENSIONS, EXTENSIONS_VARIABLE};
use environment::Environment;
pub(super) use environment::without_effect as variable_without_effect;
use view::View;

/// Environment variable that names the node where the file does not.
const NODE_NAME_VARIABLE: &str = "HOSTNAME";

/// Checks the whole document. Settings come out of a faulty one too, so that all errors are found in one go; they are of no use when the
/// report holds an error. `None`: the document is something else altogether.
pub(super) fn check(root: &Element, env: &dyn Fn(&str) -> Option<String>, report: &Report) -> Option<Settings> {
    if !shape::check(root, report) {
        return None;
    }
    let root = View::root(root, report);
    let env = &|name: &str| {
        debug_assert!(variables::is_known(name), "{name} is in no table");
        env(name)
    };
    let environment = Environment::new(&root, env);
    let mut bound = Vec::new();
    let listeners = listeners::read(&root, &mut bound);
    let mut http = http::read(&root, &mut bound);
    environment.rest_api(&root, &mut http, &mut bound);
    let authentication = authentication::read(&root, env, &listeners);
    let mut security = protocol::security(&root, authentication);
    environment.apply_anonymous(&mut security);
    let cluster = cluster::read(&root, env(NODE_NAME_VARIABLE), env, &environment, &mut bound);
    exposure::check_ports(&bound);
    exposure::check_anonymous(&root, &bound, &security);
    Some(Settings {
        listeners,
        mqtt: protocol::mqtt(&root),
        security,
        restrictions: protocol::restrictions(&root),
        persistence: match root.choice("persistence/mode") {
            "in-memory" => PersistenceMode::InMemory,
            _ => PersistenceMode::File,
        },
        cluster,
        shutdown: shutdown::read(&root),
        event_log: event_log::read(&root, env),
        addons: addons::read(&root),
        // In a file of their own.
        declared_shared_subscriptions: Vec::new(),
        http,
    })
}

/// Names of the elements inside `<jwt>`, for the documentation to have them all.
#[cfg(test)]
pub(super) fn jwt_elements() -> Vec<&'static str> {
    rules::children_of("security/authentication/jwt")
}

#[cfg(test)]
mod check_test;
