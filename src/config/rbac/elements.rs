//! What stands in the extension's files (spec/hivemq.md 7.1, 7.2).

use super::credentials::{ACTIVITY, ANY_GROUP, ITERATIONS_MAX, QOS, RETAIN, SHARE};
use super::extension::{NEXT_INSTEAD_OF_FAIL, PASSWORD_TYPES, RELOAD_INTERVAL_S};
use crate::config::file_element::Words::{Computed, Say};
use crate::config::file_element::{FileElement, element, first, list, section};

/// Of its own `config.xml`.
pub(in crate::config) const EXTENSION: &[FileElement] = &[
    element(
        "credentials-reload-interval",
        Say("a number from 1, s"),
        Computed(|| format!("`{RELOAD_INTERVAL_S}`")),
        "How often `credentials.xml` is looked at.",
    ),
    element("password-type", Computed(|| list(PASSWORD_TYPES)), Computed(|| first(PASSWORD_TYPES)), "How passwords stand there."),
    element("listener-names", Say(""), Say("all listeners"), "Listeners whose clients are asked for a password."),
    element("listener-names/listener-name", Say("name of a listener"), Say(""), "").many(),
    element(
        "next-extension-instead-of-fail",
        Computed(|| list(NEXT_INSTEAD_OF_FAIL)),
        Computed(|| first(NEXT_INSTEAD_OF_FAIL)),
        "Who is refused here is left to the next authenticator.",
    ),
];

/// Of `credentials.xml`.
pub(in crate::config) const CREDENTIALS: &[FileElement] = &[
    section("users", ""),
    section("users/user", "A user; at least one.").many(),
    element("users/user/name", Say("text"), Say("required"), "User name. Nobody with `#` or `+` in it is let in."),
    element(
        "users/user/password",
        Computed(|| {
            format!(
                "base64(salt):iterations:base64(hash), as `troupemq password hash` prints it, {ITERATIONS_MAX} iterations at most; with `PLAIN` the password"
            )
        }),
        Say("required without SCRAM, unless certificates log in"),
        "",
    ),
    element(
        "users/user/scram-sha-256",
        Say("iterations:base64(salt):base64(StoredKey):base64(ServerKey), as `troupemq password hash --scram-sha-256` prints it"),
        Say("the user does not log in that way"),
        "Keys of the authentication method SCRAM-SHA-256.",
    )
    .own(),
    element(
        "users/user/scram-sha-512",
        Say("the same with `--scram-sha-512`"),
        Say("the user does not log in that way"),
        "Keys of the authentication method SCRAM-SHA-512.",
    )
    .own(),
    section("users/user/roles", "What the user may do."),
    element("users/user/roles/id", Say("id of a role"), Say("required"), "").many(),
    section("roles", ""),
    section("roles/role", "A role; at least one.").many(),
    element("roles/role/id", Say("text"), Say("required"), "What users name it by."),
    section("roles/role/permissions", ""),
    section("roles/role/permissions/permission", "What a user of the role may do; nothing else is allowed.").many(),
    element(
        "roles/role/permissions/permission/topic",
        Say("a topic filter"),
        Say("required"),
        "`${{clientid}}` and `${{username}}` stand for those of the client.",
    ),
    element(
        "roles/role/permissions/permission/activity",
        Computed(|| list(ACTIVITY)),
        Computed(|| first(ACTIVITY)),
        "Whether for publishing or for subscribing.",
    ),
    element("roles/role/permissions/permission/qos", Computed(|| list(QOS)), Computed(|| first(QOS)), "For which QoS."),
    element(
        "roles/role/permissions/permission/retain",
        Computed(|| list(RETAIN)),
        Computed(|| first(RETAIN)),
        "For which messages that are published.",
    ),
    element(
        "roles/role/permissions/permission/shared-subscription",
        Computed(|| list(SHARE)),
        Computed(|| first(SHARE)),
        "For which subscriptions.",
    ),
    element(
        "roles/role/permissions/permission/shared-group",
        Say("name of a share"),
        Computed(|| format!("`{ANY_GROUP}`, which stands for all")),
        "For which shared subscriptions.",
    ),
];
