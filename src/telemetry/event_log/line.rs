//! Events as lines, by HiveMQ's formats where it has one.
//!
//! What a client chose (its id, its user name, a topic, a reason) cannot make a line of its own: control characters, line separators and marks
//! that turn the direction of text are written as `\u{..}`, a backslash twice, and long texts are cut.

use std::cell::RefCell;
use std::fmt::Write;

use crate::mqtt::ReasonCode;
use crate::signal::{DropReason, Receiver};
use crate::telemetry::utc::Utc;

/// Characters of one field.
const FIELD_CHARS_MAX: usize = 1_024;
const UNKNOWN: &str = "UNKNOWN";
const TOO_LARGE: &str = "Maximum packet size exceeded";

thread_local! {
    /// The second last written, and its text: many lines have the same.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Whether a text proves who somebody is, so that it may not be read.
pub type IsSecret = fn(&str) -> bool;

/// A connection's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who<'a> {
    pub client_id: Option<&'a str>,
    pub ip: Option<&'a str>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// `event.client-connected`
    Connected { who: Who<'a>, clean_start: bool, session_expiry_s: u32 },
    /// `event.client-disconnected`: the client said DISCONNECT, and perhaps why.
    Left { who: Who<'a>, reason: Option<&'a str> },
    /// `event.client-disconnected`: the connection ended without a word.
    Lost { who: Who<'a>, listener: &'a str, port: u16 },
    /// `event.client-disconnected`: the broker ended the connection.
    Closed { who: Who<'a>, reason: &'a str },
    /// `event.message-dropped`
    Dropped { receiver: &'a Receiver, topic: &'a str, qos: u8, reason: DropReason },
    /// `event.message-dropped`: a packet that is no PUBLISH.
    PacketDropped { client_id: Option<&'a str>, packet: &'a str, size_bytes: usize, max_bytes: u32 },
    /// `event.client-session-expired`
    SessionExpired { client_id: &'a str, at_ms: u64 },
    /// `event.authentication`
    Auth { who: Who<'a>, received: bool, code: ReasonCode },
    /// Our own: a client is not let in.
    LoginFailed { who: Who<'a>, user_name: Option<&'a str>, reason: &'a str },
    /// Our own: a session that is resumed has subscriptions its client may not have any more.
    SubscriptionsWithdrawn { who: Who<'a>, filters: &'a [String], more: usize },
    /// Our own: a client connects too often; `takeovers`: because several have one client id.
    Unstable { client_id: &'a str, ips: &'a [&'a str], count: u32, seconds: u64, takeovers: bool, banned_s: Option<u64> },
    /// Our own: the log could not keep up, or not be written.
    LinesLost { count: u64 },
}

/// Appends the line of an event.
///
/// A text that `is_secret` is not written, whoever chose it to be what.
pub(super) fn write(out: &mut String, now_ms: u64, is_secret: IsSecret, event: &Event<'_>) {
    // Writing to a string cannot fail. HiveMQ: `%-24(%d)- %msg%n`.
    SECOND.with_borrow_mut(|(second, text)| {
        if text.is_empty() || *second != now_ms / 1000 {
            *second = now_ms / 1000;
            *text = Utc::of(*second).for_log();
        }
        out.push_str(text);
    });
    _ = write!(out, ",{:03} - ", now_ms % 1000);
    let mut out = Line { text: out, is_secret };
    match event {
        Event::Connected { who, clean_start, session_expiry_s } => {
            out.who(who);
            out.put(format_args!(", Clean Start: {clean_start}, Session Expiry: {session_expiry_s} connected."));
        }
        Event::Left { who, reason } => {
            out.who(who);
            out.raw(" disconnected gracefully.");
            if let Some(reason) = reason {
                out.raw(" Reason given by client: ");
                out.field(Some(reason));
            }
        }
        Event::Lost { who, listener, port } => {
            out.who(who);
            out.put(format_args!(" disconnected ungracefully from {listener} on port: {port}."));
        }
        Event::Closed { who, reason } => {
            out.who(who);
            out.raw(" was disconnected. reason: ");
            out.field(Some(reason));
            out.raw(".");
        }
        Event::Dropped { receiver, topic, qos, reason } => {
            let (kind, name) = receiving(receiver);
            out.put(format_args!("Outgoing publish message was dropped. Receiving {kind}: "));
            out.field(Some(name));
            out.raw(", topic: ");
            out.field(Some(topic));
            out.put(format_args!(", qos: {qos}, reason: {}.", why(*reason, receiver)));
        }
        Event::PacketDropped { client_id, packet, size_bytes, max_bytes } => {
            out.raw("Outgoing MQTT packet was dropped. Receiving client: ");
            out.field(*client_id);
            out.put(format_args!(
                ", messageType: {packet}, reason: {TOO_LARGE}, size: {size_bytes} bytes, max: {max_bytes} bytes."
            ));
        }
        Event::SessionExpired { client_id, at_ms } => {
            out.raw("Client ID: ");
            out.field(Some(client_id));
            let at = Utc::of(at_ms / 1000).for_log();
            out.put(format_args!(" session has expired at {at}. All persistent data for this client has been removed."));
        }
        Event::Auth { who, received, code } => {
            out.raw(if *received { "Received AUTH from " } else { "Sent AUTH to " });
            out.who(who);
            out.put(format_args!(", reason code: {}.", auth_code(*code)));
        }
        Event::LoginFailed { who, user_name, reason } => {
            out.who(who);
            out.raw(", Username: ");
            out.field(*user_name);
            out.raw(" failed to authenticate. reason: ");
            out.field(Some(reason));
            out.raw(".");
        }
        Event::SubscriptionsWithdrawn { who, filters, more } => {
            out.who(who);
            out.raw(" may not have these subscriptions of its session any more, they are removed: ");
            out.list(filters.iter().map(String::as_str));
            if *more > 0 {
                out.put(format_args!(" and {more} more"));
            }
        }
        Event::Unstable { client_id, ips, count, seconds, takeovers, banned_s } => {
            out.raw("Client ID: ");
            out.field(Some(client_id));
            out.raw(", IPs: ");
            out.list(ips.iter().copied());
            let what = if *takeovers { "took its connection over from others" } else { "connected" };
            out.put(format_args!(" {what} {count} times within {seconds} s."));
            if let Some(banned_s) = banned_s {
                out.put(format_args!(" It is banned for {banned_s} s."));
            }
        }
        Event::LinesLost { count } => {
            out.put(format_args!("{count} events are missing here: they could not be written, or there were too many at once."));
        }
    }
    out.text.push('\n');
}

struct Line<'a> {
    text: &'a mut String,
    is_secret: IsSecret,
}

impl Line<'_> {
    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        _ = self.text.write_fmt(arguments);
    }

    fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn who(&mut self, who: &Who<'_>) {
        self.raw("Client ID: ");
        self.field(who.client_id);
        self.raw(", IP: ");
        self.field(who.ip);
    }

    fn list<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        let before = self.text.len();
        for text in texts {
            if self.text.len() > before {
                self.raw(", ");
            }
            self.field(Some(text));
        }
        if self.text.len() == before {
            self.raw(UNKNOWN);
        }
    }

    /// What somebody else chose.
    fn field(&mut self, text: Option<&str>) {
        let Some(text) = text.filter(|text| !(self.is_secret)(text)) else { return self.raw(UNKNOWN) };
        // As nearly all are: these need no look at each character.
        if text.len() <= FIELD_CHARS_MAX && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\') {
            return self.raw(text);
        }
        for (number, c) in text.chars().enumerate() {
            if number >= FIELD_CHARS_MAX {
                return self.raw("..");
            }
            match c {
                '\\' => self.raw("\\\\"),
                c if breaks_lines(c) => self.put(format_args!("{}", c.escape_unicode())),
                c => self.text.push(c),
            }
        }
    }
}

/// Control characters, separators of lines and paragraphs, and what turns the direction of the text around it.
fn breaks_lines(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

/// HiveMQ's words, which are not those of `hmq-drop-reason` (spec/hivemq.md 2.1). Sizes are not known here.
fn why(reason: DropReason, receiver: &Receiver) -> &'static str {
    match (reason, receiver) {
        (DropReason::ClientMessageQueueFull, Receiver::SharedSubscription(_) | Receiver::SharedSubscriptionMember { .. }) => {
            "The shared subscription message queue is full"
        }
        (DropReason::ClientMessageQueueFull, Receiver::Client(_) | Receiver::Consumer(_)) => "The client message queue is full",
        (DropReason::Qos0MemoryExceeded, _) => "The QoS 0 memory limit exceeded",
        (DropReason::Qos0ChannelNotWritable, _) => "The tcp socket was not writable",
        (DropReason::MaximumPacketSizeExceeded, _) => TOO_LARGE,
        (DropReason::ExtensionPreventedInbound | DropReason::ExtensionPreventedOutbound, _) => {
            "Extension prevented onward delivery"
        }
        (DropReason::InternalError, _) => "Internal error",
        // Our own.
        (DropReason::RetainedMessageLimitReached, _) => "The retained message limit is reached",
    }
}

/// HiveMQ names a shared subscription without `$share/`.
fn receiving(receiver: &Receiver) -> (&'static str, &str) {
    match receiver {
        Receiver::Client(client) => ("client", client),
        Receiver::SharedSubscription(full) | Receiver::SharedSubscriptionMember { shared_subscription: full, .. } => {
            ("shared subscription group", full.strip_prefix("$share/").unwrap_or(full))
        }
        // Our own.
        Receiver::Consumer(consumer) => ("consumer", consumer),
    }
}

/// HiveMQ's names.
fn auth_code(code: ReasonCode) -> &'static str {
    match code {
        ReasonCode::Success => "SUCCESS",
        ReasonCode::ContinueAuthentication => "CONTINUE_AUTHENTICATION",
        ReasonCode::ReAuthenticate => "REAUTHENTICATE",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &Event<'_>) -> String {
        let mut out = String::new();
        write(&mut out, 1_700_000_000_007, |text| text.starts_with("token"), event);
        let text = out.strip_prefix("2023-11-14 22:13:20,007 - ").unwrap_or_else(|| panic!("{out:?}"));
        text.strip_suffix('\n').unwrap_or_else(|| panic!("{out:?}")).to_owned()
    }

    #[test]
    fn lines_are_hivemqs() {
        let who = Who { client_id: Some("c"), ip: Some("192.0.2.1") };
        let nobody = Who { client_id: None, ip: None };
        let (client, group) = (Receiver::Client("c".into()), Receiver::SharedSubscription("$share/g/a/#".into()));
        let member = Receiver::SharedSubscriptionMember { shared_subscription: "$share/g/a".into(), client: "c".into() };
        let consumer = Receiver::Consumer("k".into());
        let dropped = |receiver, reason| Event::Dropped { receiver, topic: "a/b", qos: 1, reason };
        let table = [
            (
                Event::Connected { who, clean_start: true, session_expiry_s: 0 },
                "Client ID: c, IP: 192.0.2.1, Clean Start: true, Session Expiry: 0 connected.",
            ),
            (Event::Left { who, reason: None }, "Client ID: c, IP: 192.0.2.1 disconnected gracefully."),
            (
                Event::Left { who, reason: Some("lunch") },
                "Client ID: c, IP: 192.0.2.1 disconnected gracefully. Reason given by client: lunch",
            ),
            (
                Event::Lost { who: nobody, listener: "TCP Listener", port: 1883 },
                "Client ID: UNKNOWN, IP: UNKNOWN disconnected ungracefully from TCP Listener on port: 1883.",
            ),
            (
                Event::Closed { who, reason: "Keep Alive timeout" },
                "Client ID: c, IP: 192.0.2.1 was disconnected. reason: Keep Alive timeout.",
            ),
            (
                dropped(&client, DropReason::ClientMessageQueueFull),
                "Outgoing publish message was dropped. Receiving client: c, topic: a/b, qos: 1, reason: The client message queue is full.",
            ),
            (
                dropped(&group, DropReason::ClientMessageQueueFull),
                "Outgoing publish message was dropped. Receiving shared subscription group: g/a/#, topic: a/b, qos: 1, reason: \
                 The shared subscription message queue is full.",
            ),
            (
                dropped(&member, DropReason::InternalError),
                "Outgoing publish message was dropped. Receiving shared subscription group: g/a, topic: a/b, qos: 1, reason: \
                 Internal error.",
            ),
            (
                dropped(&consumer, DropReason::InternalError),
                "Outgoing publish message was dropped. Receiving consumer: k, topic: a/b, qos: 1, reason: Internal error.",
            ),
            (
                Event::PacketDropped { client_id: Some("c"), packet: "SUBACK", size_bytes: 25, max_bytes: 8 },
                "Outgoing MQTT packet was dropped. Receiving client: c, messageType: SUBACK, reason: Maximum packet size exceeded, \
                 size: 25 bytes, max: 8 bytes.",
            ),
            (
                Event::SessionExpired { client_id: "c", at_ms: 951_782_400_999 },
                "Client ID: c session has expired at 2000-02-29 00:00:00. All persistent data for this client has been removed.",
            ),
            (
                Event::Auth { who, received: true, code: ReasonCode::ReAuthenticate },
                "Received AUTH from Client ID: c, IP: 192.0.2.1, reason code: REAUTHENTICATE.",
            ),
            (
                Event::Auth { who, received: false, code: ReasonCode::ContinueAuthentication },
                "Sent AUTH to Client ID: c, IP: 192.0.2.1, reason code: CONTINUE_AUTHENTICATION.",
            ),
            (
                Event::LoginFailed { who, user_name: None, reason: "no" },
                "Client ID: c, IP: 192.0.2.1, Username: UNKNOWN failed to authenticate. reason: no.",
            ),
            (
                Event::SubscriptionsWithdrawn { who, filters: &["a/#".to_owned(), "b".to_owned()], more: 3 },
                "Client ID: c, IP: 192.0.2.1 may not have these subscriptions of its session any more, they are removed: a/#, b and 3 more",
            ),
            (
                Event::Unstable { client_id: "c", ips: &["a", "b"], count: 5, seconds: 60, takeovers: true, banned_s: Some(300) },
                "Client ID: c, IPs: a, b took its connection over from others 5 times within 60 s. It is banned for 300 s.",
            ),
            (
                Event::Unstable { client_id: "c", ips: &[], count: 15, seconds: 60, takeovers: false, banned_s: None },
                "Client ID: c, IPs: UNKNOWN connected 15 times within 60 s.",
            ),
            (
                Event::LinesLost { count: 3 },
                "3 events are missing here: they could not be written, or there were too many at once.",
            ),
        ];
        for (event, expected) in table {
            assert_eq!(line(&event), expected);
        }
    }

    #[test]
    fn what_is_a_secret_is_not_written_whatever_stands_there() {
        let who = Who { client_id: Some("token1"), ip: Some("192.0.2.1") };
        let receiver = Receiver::Client("token1".into());
        let table = [
            Event::Connected { who, clean_start: true, session_expiry_s: 0 },
            Event::Left { who, reason: Some("token2") },
            Event::Lost { who, listener: "l", port: 1 },
            Event::Dropped { receiver: &receiver, topic: "token3", qos: 0, reason: DropReason::InternalError },
            Event::PacketDropped { client_id: Some("token1"), packet: "SUBACK", size_bytes: 9, max_bytes: 5 },
            Event::SessionExpired { client_id: "token1", at_ms: 0 },
            Event::Auth { who, received: true, code: ReasonCode::Success },
            Event::LoginFailed { who, user_name: Some("token4"), reason: "no" },
            Event::SubscriptionsWithdrawn { who, filters: &["token5".to_owned()], more: 0 },
            Event::Unstable { client_id: "token1", ips: &[], count: 5, seconds: 60, takeovers: true, banned_s: None },
        ];
        for event in table {
            let line = line(&event);
            assert!(!line.contains("token") && line.contains("UNKNOWN"), "{line}");
        }
    }

    #[test]
    fn messages_are_dropped_for_hivemqs_reasons() {
        let (client, consumer) = (Receiver::Client("c".into()), Receiver::Consumer(Receiver::RETAINED.into()));
        let group = Receiver::SharedSubscription("$share/g/a".into());
        let member = Receiver::member("$share/g/a".into(), "c".into());
        let table = [
            (DropReason::ClientMessageQueueFull, &client, "The client message queue is full"),
            (DropReason::ClientMessageQueueFull, &group, "The shared subscription message queue is full"),
            (DropReason::ClientMessageQueueFull, &member, "The shared subscription message queue is full"),
            (DropReason::Qos0MemoryExceeded, &client, "The QoS 0 memory limit exceeded"),
            (DropReason::Qos0ChannelNotWritable, &member, "The tcp socket was not writable"),
            (DropReason::MaximumPacketSizeExceeded, &client, "Maximum packet size exceeded"),
            (DropReason::ExtensionPreventedInbound, &client, "Extension prevented onward delivery"),
            (DropReason::ExtensionPreventedOutbound, &client, "Extension prevented onward delivery"),
            (DropReason::InternalError, &group, "Internal error"),
            (DropReason::RetainedMessageLimitReached, &consumer, "The retained message limit is reached"),
        ];
        for (reason, receiver, expected) in table {
            let text = line(&Event::Dropped { receiver, topic: "t", qos: 0, reason });
            assert!(text.ends_with(&format!(", topic: t, qos: 0, reason: {expected}.")), "{text}");
        }
    }

    #[test]
    fn no_client_writes_a_line_of_its_own() {
        let evil = "a\n2026-01-01 00:00:00,000 - Client ID: b\r\u{85}\u{2028}\u{202E}\0\u{1B}[2J\\n";
        let who = Who { client_id: Some(evil), ip: None };
        let text = line(&Event::LoginFailed { who, user_name: Some(evil), reason: "no" });
        assert!(!text.contains(|c: char| c.is_control() || c == '\u{2028}' || c == '\u{202E}'), "{text:?}");
        assert!(text.starts_with("Client ID: a\\u{a}2026") && text.contains("\\u{0}\\u{1b}[2J\\\\n"), "{text}");
        let long = "ü".repeat(60_000);
        let text = line(&Event::SessionExpired { client_id: &long, at_ms: 0 });
        assert!(text.chars().count() < 1_200 && text.contains("ü.. session"), "{text}");
    }
}
