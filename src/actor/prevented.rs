//! Messages that the operator keeps back (`<prevented-messages>`, TroupeMQ's own): what an interceptor of a HiveMQ extension can do.

use bytestring::ByteString;

use crate::mqtt::topic_filter;

/// Which messages are kept back.
#[derive(Debug, Clone, Default)]
pub struct Prevented {
    /// From clients: acknowledged, and routed to nobody.
    pub inbound: Vec<Rule>,
    /// To clients: taken out of their queues, and not sent.
    pub outbound: Vec<Rule>,
}

/// Messages on topics that match the filter, of or for one client, or any.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Valid. A wildcard at its first level matches no topic that starts with `$` [MQTT-4.7.2-1].
    pub topic_filter: ByteString,
    pub client_id: Option<ByteString>,
}

impl Prevented {
    /// Whether a message that the client publishes is kept back. Those the broker makes are published by no client.
    pub fn is_inbound(&self, topic: &str, client_id: &str) -> bool {
        self.inbound.iter().any(|rule| rule.applies(topic, client_id))
    }

    pub fn is_outbound(&self, topic: &str, client_id: &str) -> bool {
        self.outbound.iter().any(|rule| rule.applies(topic, client_id))
    }
}

impl Rule {
    fn applies(&self, topic: &str, client_id: &str) -> bool {
        self.client_id.as_ref().is_none_or(|wanted| wanted == client_id) && topic_filter::matches(&self.topic_filter, topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_for_its_topics_and_its_client() {
        let rule =
            |filter: &str, client_id: Option<&str>| Rule { topic_filter: filter.into(), client_id: client_id.map(Into::into) };
        let prevented =
            Prevented { inbound: vec![rule("debug/#", None), rule("#", Some("mute"))], outbound: vec![rule("a", Some("b"))] };
        let table = [
            ("debug/x", "any", true),
            ("debugging", "any", false),
            ("x", "any", false),
            ("x", "mute", true),
            ("x", "mute too", false),
            ("$dead/x", "mute", false),
        ];
        for (topic, client_id, expected) in table {
            assert_eq!(prevented.is_inbound(topic, client_id), expected, "{topic} of {client_id}");
        }
        assert!(prevented.is_outbound("a", "b"));
        assert!(!prevented.is_outbound("a", "c") && !prevented.is_outbound("x", "mute"), "each way has rules of its own");
    }
}
