//! Topic Names (MQTT 5 section 4.7).

/// Whether `topic` may stand in a PUBLISH: 1 to 65,535 bytes, no U+0000, no wildcard [MQTT-3.3.2-2] [MQTT-4.7.3-1] [MQTT-4.7.3-2].
pub fn is_valid(topic: &str) -> bool {
    !topic.is_empty() && topic.len() <= 65_535 && !topic.bytes().any(|b| matches!(b, b'+' | b'#' | 0))
}

/// Whether the topic lies in a namespace that only the server writes (spec/hivemq.md 4.7): its first character is `$`.
pub fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$')
}
