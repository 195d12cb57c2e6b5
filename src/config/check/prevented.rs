//! `<restrictions><prevented-messages>`, an own element: what an interceptor of a HiveMQ extension would keep back.

use super::view::View;
use crate::config::limits::PREVENTED_RULES_MAX;
use crate::config::settings::{PreventedRule, PreventedSettings};
use crate::mqtt::topic_filter;

pub(super) fn read(restrictions: &View<'_>) -> PreventedSettings {
    let prevented = restrictions.at("prevented-messages");
    PreventedSettings { inbound: rules(&prevented, "inbound"), outbound: rules(&prevented, "outbound") }
}

fn rules(prevented: &View<'_>, way: &str) -> Vec<PreventedRule> {
    let found = prevented.all(way);
    if found.len() > PREVENTED_RULES_MAX {
        prevented.error(format!(
            "found {} times <{way}>; allowed: {PREVENTED_RULES_MAX}, since every message is compared with each; use wildcards",
            found.len()
        ));
    }
    found.iter().filter_map(rule).collect()
}

fn rule(rule: &View<'_>) -> Option<PreventedRule> {
    let Some(filter) = rule.at("topic-filter").own_text() else {
        rule.error("found no <topic-filter>; allowed: one; add it, # is for all topics that do not start with $");
        return None;
    };
    if !topic_filter::is_valid(filter) || filter.starts_with("$share/") {
        let found = rule.at("topic-filter").quote(filter);
        rule.at("topic-filter")
            .error(format!("found {found}; allowed: a topic filter that is no shared subscription; correct the value"));
        return None;
    }
    let client_id = rule.at("client-id").own_text().map(str::to_owned);
    Some(PreventedRule { topic_filter: filter.to_owned(), client_id })
}
