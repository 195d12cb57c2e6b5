//! Lifecycle events: triggers and their mistakes.

use super::*;

/// connected, client, server, session-taken-over, unspecified
fn triggers(inside: &str) -> [bool; 5] {
    let l = settings(&nest("mqtt-addons/client-lifecycle-topic", inside)).addons.lifecycle;
    [l.connected, l.client, l.server, l.session_taken_over, l.unspecified]
}

#[test]
fn lifecycle_triggers_follow_presence() {
    let cases = [
        ("", [true; 5]),
        ("<triggers><client-connected/></triggers>", [true, false, false, false, false]),
        ("<triggers><client-disconnected/></triggers>", [false, true, true, true, true]),
        ("<triggers><client-connected></client-connected><client-disconnected></client-disconnected></triggers>", [true; 5]),
        ("<triggers><client-disconnected><server/></client-disconnected></triggers>", [false, false, true, false, false]),
        (
            "<triggers><client-disconnected><client/><session-taken-over/><unspecified/></client-disconnected></triggers>",
            [false, true, false, true, true],
        ),
    ];
    for (inside, expected) in cases {
        assert_eq!(triggers(inside), expected, "{inside}");
    }
}

#[test]
fn lifecycle_mistakes_count_even_when_disabled() {
    let cases = [
        ("<triggers/>", "triggers>: found no trigger; allowed: <client-connected/>, <client-disconnected/> or both"),
        ("<triggers> \n </triggers>", "triggers>: found no trigger"),
        ("<triggers><other/></triggers>", "triggers>: found no trigger"),
        (
            "<triggers><client-disconnected><other/></client-disconnected></triggers>",
            "client-disconnected>: found no known initiator",
        ),
        (
            "<triggers><client-connected>false</client-connected></triggers>",
            "client-connected>: found \"false\"; allowed: nothing inside",
        ),
        ("<identifier/>", "identifier>: found neither <client-id/> nor <username/>; allowed: exactly one of them"),
        ("<identifier><client-id/><username/></identifier>", "identifier>: found both <client-id/> and <username/>"),
        ("<identifier>username</identifier>", "identifier>: found text between its elements"),
    ];
    for enabled in ["", "<enabled>false</enabled>", "<enabled>true</enabled>"] {
        for (inside, message) in cases {
            let text = file(&nest("mqtt-addons/client-lifecycle-topic", &format!("{enabled}{inside}")));
            let errors = check_text(&text).errors;
            assert!(errors.iter().any(|e| e.to_string().contains(message)), "{inside}: {errors:?}");
        }
    }
}
