//! `<security><authentication><jwt>`, an element of our own. Its keys are read too, so that a file that is missing or of no use is found
//! before the start.

use super::view::View;
use crate::config::jwt::{self, Algorithm, Finding, JwtSettings, KeySources, Part, TokenFrom, VerifyClaim, WithoutPermissions};
use crate::config::rbac::Template;
use crate::config::settings::Secret;

const USER_NAME_CLAIM: &str = "sub";
const PERMISSIONS_CLAIM: &str = "permissions";
const ROLES_CLAIM: &str = "roles";

/// `None` where it is absent or switched off. `file_rbac` says whether there are files with roles.
pub(super) fn read(jwt: &View<'_>, file_rbac: bool) -> Option<JwtSettings> {
    if !jwt.exists() || !jwt.flag("enabled") {
        return None;
    }
    let sources = sources(jwt);
    let algorithms = algorithms(jwt);
    check_keys(jwt, &sources, &algorithms);
    let without = jwt.choice("without-permissions");
    let without_permissions = match without {
        "ALL" => WithoutPermissions::All,
        "FILE_RBAC" => WithoutPermissions::FileRbac,
        _ => WithoutPermissions::Nothing,
    };
    let roles = jwt.at("roles-claim");
    if !file_rbac && without_permissions == WithoutPermissions::FileRbac {
        jwt.at("without-permissions")
            .error("found \"FILE_RBAC\", and File RBAC is off; allowed: NONE or ALL; switch <file-rbac> on, or change the value");
    }
    if !file_rbac && roles.exists() {
        roles.warning("has no effect: File RBAC, whose roles it is to name, is off");
    }
    let texts = |name: &str| -> Vec<String> { jwt.all(name).iter().filter_map(View::own_text).map(str::to_owned).collect() };
    let claim = |name: &str, default: &str| jwt.at(name).own_text().unwrap_or(default).to_owned();
    Some(JwtSettings {
        token_from: if jwt.choice("token-from") == "USER_NAME" { TokenFrom::UserName } else { TokenFrom::Password },
        method: method(jwt),
        sources,
        reload_interval_s: jwt.u32_or_max("keys-reload-interval"),
        algorithms,
        leeway_s: jwt.u32_or_max("leeway"),
        expiry_required: jwt.flag("expiry-required"),
        issuers: texts("issuer"),
        audiences: texts("audience"),
        user_name_claim: claim("user-name-claim", USER_NAME_CLAIM),
        verify: jwt.all("verify-claim").iter().filter_map(verify).collect(),
        permissions_claim: claim("permissions-claim", PERMISSIONS_CLAIM),
        roles_claim: claim("roles-claim", ROLES_CLAIM),
        without_permissions,
    })
}

fn sources(jwt: &View<'_>) -> KeySources {
    KeySources {
        secret: jwt.at("secret").own_text().map(Secret::new),
        secret_file: jwt.at("secret-file").file(),
        secret_base64: jwt.flag("secret-base64"),
        public_keys: jwt.all("public-key-file").iter().filter_map(View::file).collect(),
        jwks: jwt.at("jwks-file").file(),
    }
}

/// Names of methods have no other meaning here than SCRAM's.
fn method(jwt: &View<'_>) -> Option<String> {
    let method = jwt.word("authentication-method")?;
    if method.starts_with("SCRAM-") {
        let found = jwt.at("authentication-method").quote(method);
        jwt.at("authentication-method").error(format!("found {found}; allowed: a name that is not SCRAM's, such as JWT"));
        return None;
    }
    Some(method.to_owned())
}

/// All there are where none is named.
fn algorithms(jwt: &View<'_>) -> Vec<Algorithm> {
    let named = jwt.all("algorithm");
    let all = || Algorithm::ALL.map(Algorithm::name).join(" or ");
    let found = named.iter().filter_map(|element| {
        let name = element.own_text()?;
        let algorithm = Algorithm::named(name);
        if algorithm.is_none() {
            element.error(format!("found {}; allowed: {}; correct the value", element.quote(name), all()));
        }
        algorithm
    });
    let found: Vec<Algorithm> = found.collect();
    if named.is_empty() { Algorithm::ALL.to_vec() } else { found }
}

fn check_keys(jwt: &View<'_>, sources: &KeySources, algorithms: &[Algorithm]) {
    let secret = jwt.at("secret");
    if secret.exists() && secret.own_text().is_none() {
        secret.error("is empty, or the variable in it is; allowed: a secret, for example from `openssl rand -base64 48`; set it, or remove the element");
        return;
    }
    if sources.is_empty() {
        // A source that is there and refused has been reported.
        if !["secret", "secret-file", "public-key-file", "jwks-file"].iter().any(|name| jwt.at(name).exists()) {
            jwt.error(
                "there is no key; add <secret>, <secret-file>, <public-key-file> or <jwks-file> with what the issuer of the tokens signs by",
            );
        }
        return;
    }
    let at = |part: Part| match part {
        Part::Secret => jwt.at("secret"),
        Part::SecretFile => jwt.at("secret-file"),
        Part::PublicKeyFile(n) => jwt.all("public-key-file").into_iter().nth(n).unwrap_or_else(|| jwt.at("public-key-file")),
        Part::JwksFile => jwt.at("jwks-file"),
    };
    match jwt::load(sources) {
        Ok(loaded) => {
            for Finding { part, message } in &loaded.warnings {
                let element = at(*part);
                element.warning(element.without_path(message));
            }
            let serves = |algorithm: &Algorithm| loaded.keys.iter().any(|key| key.serves(*algorithm));
            if !algorithms.is_empty() && !algorithms.iter().any(serves) {
                let fit = Algorithm::ALL.iter().filter(|algorithm| serves(algorithm)).map(|algorithm| algorithm.name());
                jwt.at("algorithm").error(format!(
                    "no key is for this algorithm; allowed with these keys: {}; change the value or the keys",
                    fit.collect::<Vec<_>>().join(" or ")
                ));
            }
        }
        Err(findings) => findings.iter().for_each(|Finding { part, message }| {
            let element = at(*part);
            element.error(element.without_path(message));
        }),
    }
}

fn verify(element: &View<'_>) -> Option<VerifyClaim> {
    let both = element.at("claim").own_text().zip(element.at("value").own_text());
    let Some((claim, value)) = both else {
        element.error("<claim> or <value> is missing; add <claim>sub</claim><value>${{clientid}}</value> or the like");
        return None;
    };
    let mut unknown = Vec::new();
    let template = Template::parse(value, &mut unknown);
    if let Some(name) = unknown.first() {
        let name = element.at("value").quote(name);
        element.at("value").error(format!("found placeholder {name}; allowed: ${{{{clientid}}}} and ${{{{username}}}}"));
    }
    Some(VerifyClaim { claim: claim.to_owned(), value: template })
}
