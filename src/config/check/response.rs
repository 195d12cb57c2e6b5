//! Own elements of `<mqtt>`: what CONNACK says of Response Topics, and where clients are sent that cannot stay.

use super::view::View;
use crate::config::limits::REFERENCE_LEN_MAX;
use crate::config::settings::{RefuseConnections, ServerReference};
use crate::mqtt::topic_name;

/// Stands for the client id in the template, as in HiveMQ's permissions.
pub(in crate::config) const CLIENT_ID: &str = "${{clientid}}";

/// Reads the template of the Response Information; `None`: clients get none.
pub(super) fn information(section: &View<'_>) -> Option<String> {
    let template = section.at("template");
    if section.exists() && !template.exists() {
        section.error(format!(
            "the element <template> is missing; add <template>responses/{CLIENT_ID}</template>, or remove the section"
        ));
    }
    let text = template.own_text()?;
    let sample = text.replace(CLIENT_ID, "client");
    if sample.contains("${") || !topic_name::is_valid(&sample) || topic_name::is_reserved(&sample) {
        let found = template.quote(text);
        template.error(format!(
            "found {found}; allowed: the start of a topic name that clients may publish to, with {CLIENT_ID} for the client id and no \
             other placeholder; correct the value"
        ));
        return None;
    }
    Some(text.to_owned())
}

/// Reads the Server Reference; `None`: clients are sent nowhere.
pub(super) fn server_reference(section: &View<'_>) -> Option<ServerReference> {
    let reference = section.at("reference");
    if section.exists() && !reference.exists() {
        section.error(
            "the element <reference> is missing; add <reference>other-host:1883</reference>, or remove the section: without it \
             clients cannot be sent anywhere",
        );
    }
    let text = reference.own_text()?;
    if text.len() > REFERENCE_LEN_MAX || text.contains(char::is_control) {
        let found = reference.quote(text);
        reference.error(format!(
            "found {found}; allowed: up to {REFERENCE_LEN_MAX} bytes, host or host:port, several with spaces between; correct the value"
        ));
        return None;
    }
    Some(ServerReference {
        reference: text.to_owned(),
        at_shutdown: section.flag("at-shutdown"),
        refuse: match section.choice("refuse-connections") {
            "when-unavailable" => RefuseConnections::WhenUnavailable,
            "always" => RefuseConnections::Always,
            _ => RefuseConnections::Never,
        },
    })
}
