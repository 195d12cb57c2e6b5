//! Variables of the environment that have a meaning without a placeholder; the check asks for no other.

pub(in crate::config) struct Variable {
    pub(in crate::config) name: &'static str,
    /// What stands in `config.xml` for the same, and goes before the variable; "" where there is nothing.
    pub(in crate::config) element: &'static str,
    /// Markdown.
    pub(in crate::config) meaning: &'static str,
}

const fn variable(name: &'static str, element: &'static str, meaning: &'static str) -> Variable {
    Variable { name, element, meaning }
}

pub(in crate::config) const VARIABLES: &[Variable] = &[
    variable("HOSTNAME", "cluster/node-name", "Name of a node of a cluster. A node alone has its name whatever the host's."),
    variable("HIVEMQ_CLUSTER_PORT", "cluster/transport/tcp/bind-port", "Port that nodes reach each other at: 1 to 65,535."),
    variable("HIVEMQ_BIND_ADDRESS", "cluster/transport/tcp/bind-address", "Address for it: an IP address."),
    variable("HIVEMQ_CLUSTER_TRANSPORT_TYPE", "", "`TCP`; `UDP` is treated as TCP, with a warning. Anything else is refused."),
    variable("HIVEMQ_DNS_DISCOVERY_ADDRESS", "cluster/discovery/extension/address", "A name whose addresses are the nodes."),
    variable("HIVEMQ_DNS_DISCOVERY_TIMEOUT", "cluster/discovery/extension/resolution-timeout", "Seconds for an answer."),
    variable("HIVEMQ_DNS_RELOAD_INTERVAL", "cluster/discovery/extension/reload-interval", "Seconds between questions."),
    variable(
        "HIVEMQ_DNS_DISCOVERY_INTERVAL",
        "cluster/discovery/extension/reload-interval",
        "The same, as HiveMQ's image calls it.",
    ),
    variable(
        "HIVEMQ_ALLOW_ALL_CLIENTS",
        "security/allow-anonymous/enabled",
        "`true`: clients without credentials come in unless the file says no. `false`: they do not, **whatever the file says**: whoever sets it means nobody to come in.",
    ),
    variable(
        "HIVEMQ_EXTENSION_FOLDER",
        "security/authentication/file-rbac/folder",
        "The folder of all extensions, in which that of File RBAC is looked for.",
    ),
    variable("HIVEMQ_LOG_FOLDER", "event-log/folder", "Where `event.log` is."),
    variable(
        "HIVEMQ_REST_API_ENABLED",
        "rest-api",
        "`true` opens the port of the REST API on all addresses, which serves metrics and health, with a warning.",
    ),
    variable("HIVEMQ_LICENSE", "", ""),
    variable("HIVEMQ_CONTROL_CENTER_USER", "", ""),
    variable("HIVEMQ_CONTROL_CENTER_PASSWORD", "", ""),
    variable("HIVEMQ_VERBOSE_ENTRYPOINT", "", ""),
];

/// Whether a variable is in the table.
pub(super) fn is_known(name: &str) -> bool {
    VARIABLES.iter().any(|variable| variable.name == name)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::from_bytes;

    #[test]
    fn the_check_asks_for_every_variable_of_the_table_and_for_no_other() {
        let text = "<hivemq><listeners><tcp-listener><port>0</port><bind-address>::1</bind-address></tcp-listener></listeners>\
                    <cluster><enabled>true</enabled><secret>0123456789abcdef</secret><discovery><extension/></discovery></cluster></hivemq>";
        let asked = RefCell::new(BTreeSet::new());
        let answer = |name: &str| {
            asked.borrow_mut().insert(name.to_owned());
            (name == "HIVEMQ_DNS_DISCOVERY_ADDRESS").then(|| "nodes".to_owned())
        };
        _ = from_bytes(text.as_bytes(), "c.xml", &answer);
        let known: BTreeSet<_> = VARIABLES.iter().map(|variable| variable.name.to_owned()).collect();
        assert_eq!(asked.into_inner(), known);
    }

    #[test]
    fn variables_stand_for_elements_and_say_what_they_do() {
        for variable in VARIABLES {
            let without_effect = crate::config::check::variable_without_effect(variable.name);
            assert!(variable.element.is_empty() || super::super::rules::find(variable.element).is_some(), "{}", variable.name);
            assert!(!variable.meaning.is_empty() || without_effect.is_some(), "{}", variable.name);
        }
    }
}
