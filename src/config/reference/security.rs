//! Chapters of who comes in.

use super::row::{Chapter, Holds, hive, own};
use crate::config::Settings;
use crate::config::check::{EXTENSIONS, EXTENSIONS_VARIABLE};
use crate::config::jwt::{Algorithm, JwtSettings};
use crate::config::limits::JWT_KEYS_MAX;
use crate::config::rbac::FOLDER;

pub(super) const SECURITY: Chapter = Chapter {
    title: "Security",
    base: "security",
    intro: "Who comes in; what clients may do stands in the files of [File RBAC](#file-rbac-configxml) and in tokens. [authentication.md](authentication.md) and \
            [access.md](access.md) say how all of that works together.",
    rows: &[
        own("allow-anonymous/enabled", "Clients are let in that no authenticator decides about. Without an authenticator those are all clients."),
        hive("allow-empty-client-id/enabled", "A client without client id gets one; with `false` it is refused."),
        hive("payload-format-validation/enabled", "A payload that says to be UTF-8 is looked at, and refused where it is not."),
        hive("utf8-validation/enabled", "Texts with control characters and non-characters are malformed; U+0000 always is."),
        hive(
            "allow-request-problem-information/enabled",
            "Clients may ask for reason strings and user properties; with `false` no client gets them, except in PUBLISH, CONNACK and DISCONNECT.",
        ),
        hive("control-center-audit-log", "HiveMQ's log of what its control center was used for."),
        hive("control-center-audit-log/enabled", ""),
        hive("rest-api-audit-log", "HiveMQ's log of what its REST API was used for."),
        hive("rest-api-audit-log/enabled", ""),
        own("authentication/file-rbac/enabled", "HiveMQ's File RBAC extension, which is built in: users, passwords and permissions in files."),
        own("authentication/file-rbac/folder", "The folder of the extension, with `conf/` in it.")
            .holds(Holds::File("a folder"))
            .without_it(|_| {
                format!(
                    "`{FOLDER}` in `{EXTENSIONS}` (seen from `config.xml`) or in the folder that the variable `{EXTENSIONS_VARIABLE}` names, if it is there and \
                     holds no file `DISABLED`"
                )
            }),
        own("authentication/client-certificate/enabled", "A client certificate that a listener verified stands for the user it names, with what File RBAC allows that user; without File RBAC, with everything."),
        own("authentication/client-certificate/user-name", "Which name of the certificate is the user's; of alternative names the first DNS name or IP address."),
    ],
    example: "\
<security>
  <allow-anonymous><enabled>true</enabled></allow-anonymous>
  <allow-empty-client-id><enabled>false</enabled></allow-empty-client-id>
  <payload-format-validation><enabled>true</enabled></payload-format-validation>
  <authentication>
    <file-rbac><folder>file-rbac</folder></file-rbac>
  </authentication>
</security>",
    mistakes: &[
        "<security><allow-anonymous>true</allow-anonymous></security>", "<security><allow-anonymous><enabled>yes</enabled></allow-anonymous></security>",
    ],
};

pub(super) const JWT: Chapter = Chapter {
    title: "Signed tokens",
    base: "security/authentication/jwt",
    intro: "A signed token (JWT) says who a client is and what it may do. At least one key is needed. All of it, with examples: [authentication.md](authentication.md).",
    rows: &[
        own("enabled", "Tokens are looked at."),
        own("token-from", "Where in CONNECT the token is."),
        own("authentication-method", "MQTT 5 clients that name this method send the token as Authentication Data.")
            .holds(Holds::Word("a name that is not SCRAM's"))
            .without("none"),
        own("secret", "A secret shared with the issuer; `${NAME}` takes it from the environment.").without(KEYS),
        own("secret-file", "The same in a file; one line end at its end does not count.")
            .holds(Holds::File("a file"))
            .without(KEYS),
        own("secret-base64", "Both stand in base64 or base64url."),
        own("public-key-file", "Public keys, or a certificate.").holds(Holds::File("a PEM file")).without(KEYS),
        own("jwks-file", "A JSON Web Key Set (RFC 7517).")
            .holds(Holds::Computed(|| format!("path of a JSON file, of up to {JWT_KEYS_MAX} keys")))
            .without(KEYS),
        own("keys-reload-interval", "How often the files are looked at.").unit("s"),
        own("algorithm", "Narrows what a token may be signed by.")
            .holds(Holds::Computed(|| Algorithm::ALL.map(|algorithm| format!("`{}`", algorithm.name())).join(", ")))
            .without("all of these"),
        own("leeway", "By how much the clocks of issuer and broker may differ.").unit("s"),
        own("expiry-required", "A token without `exp` is refused."),
        own("issuer", "`iss` must be one of them.").without("any"),
        own("audience", "`aud`, or one of its elements, must be one of them.").without("any"),
        own("user-name-claim", "The user name of the client.")
            .holds(CLAIM)
            .without_it(|bare| claim(bare, |jwt| &jwt.user_name_claim)),
        own("verify-claim", "A claim that must be a certain text.").without("none"),
        own("verify-claim/claim", "Its name.").holds(CLAIM).without("required"),
        own("verify-claim/value", "The text; `${{clientid}}` and `${{username}}` stand for what the client sent in CONNECT.")
            .without("required"),
        own("permissions-claim", "What the client may do.")
            .holds(CLAIM)
            .without_it(|bare| claim(bare, |jwt| &jwt.permissions_claim)),
        own("roles-claim", "Names of roles of File RBAC.").holds(CLAIM).without_it(|bare| claim(bare, |jwt| &jwt.roles_claim)),
        own(
            "without-permissions",
            "What a client may do whose token has neither of the two claims: nothing, everything, what the roles of its user in `credentials.xml` allow.",
        ),
    ],
    example: "\
<security>
  <authentication>
    <jwt>
      <jwks-file>jwks.json</jwks-file>
      <algorithm>RS256</algorithm>
      <issuer>https://issuer.example.com</issuer>
      <audience>mqtt</audience>
      <verify-claim><claim>device</claim><value>${{clientid}}</value></verify-claim>
    </jwt>
  </authentication>
</security>",
    mistakes: &[
        "<security><authentication><jwt/></authentication></security>",
        "<security><authentication><jwt><secret>0123456789abcdef0123456789abcdef</secret><algorithm>none</algorithm></jwt></authentication></security>",
        "<security><authentication><jwt><secret>0123456789abcdef0123456789abcdef</secret><algorithm>RS256</algorithm></jwt></authentication></security>",
        "<security><authentication><jwt><secret>0123456789abcdef0123456789abcdef</secret><without-permissions>FILE_RBAC</without-permissions></jwt></authentication></security>",
        "<security><authentication><jwt><secret>0123456789abcdef0123456789abcdef</secret><verify-claim><claim>device</claim>\
         <value>${{device}}</value></verify-claim></jwt></authentication></security>",
    ],
};

pub(super) const UNSTABLE_CLIENTS: Chapter = Chapter {
    title: "Clients that do not come to rest",
    base: "security/unstable-clients",
    intro: "Finds clients that connect again and again, or fight over a client id; tells, and may keep them out for a while: [access.md](access.md).",
    rows: &[
        own("enabled", "They are looked for and told."),
        own("window", "The time in which is counted.").unit("s"),
        own("connects", "So many of a client id within the window are too many."),
        own("takeovers", "So many connections of a client id that were taken over within the window are too many."),
        own("ban/enabled", "They are kept out (0x8A)."),
        own("ban/duration", "For how long.").unit("s"),
        own("ban/addresses", "Also everybody else at the addresses that the client came from."),
    ],
    example: "\
<security>
  <unstable-clients>
    <window>30</window>
    <connects>10</connects>
    <ban>
      <enabled>true</enabled>
      <duration>120</duration>
    </ban>
  </unstable-clients>
</security>",
    mistakes: &["<security><unstable-clients><connects>1</connects></unstable-clients></security>"],
};

const KEYS: &str = "one of the four is required";
const CLAIM: Holds = Holds::Says("a name, or a JSON pointer where it begins with `/`");

/// Name of a claim as it is without its element.
fn claim(bare: &Settings, read: fn(&JwtSettings) -> &str) -> String {
    bare.security.authentication.jwt.as_ref().map(|jwt| format!("`{}`", read(jwt))).unwrap_or_default()
}
