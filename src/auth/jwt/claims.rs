//! What the claims of a token must be (RFC 7519 section 4.1), once its signature is proved. A claim of the wrong type is never an absent
//! one.

use std::time::Duration;

use bytestring::ByteString;
use serde_json::{Map, Value};

use super::super::{Refusal, Request};
use crate::config::jwt::JwtSettings;
use crate::config::rbac::Substitutes;
use crate::mqtt::ReasonCode;
use crate::mqtt::codec::has_discouraged;

/// What the issuer may tell a client of its own token.
const fn refusal(reason: &'static str) -> Refusal {
    Refusal { code: ReasonCode::NotAuthorized, reason }
}

pub(super) const EXPIRED: Refusal = refusal("Authentication failed because the token has expired");
pub(super) const NOT_YET: Refusal = refusal("Authentication failed because the token is not valid yet");
pub(super) const NO_EXPIRY: Refusal = refusal("Authentication failed because the token has no expiry");
pub(super) const DATES: Refusal = refusal("Authentication failed because a date in the token is no number");
pub(super) const ISSUER: Refusal = refusal("Authentication failed because the token is of another issuer");
pub(super) const AUDIENCE: Refusal = refusal("Authentication failed because the token is for another audience");
pub(super) const CLIENT: Refusal = refusal("Authentication failed because the token is for another client");
pub(super) const USER_NAME: Refusal = refusal("Authentication failed because the user name in the token is not valid");

/// What became of the claims.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// The name that is proved.
    pub(super) user_name: Option<ByteString>,
    /// Wall clock, with the leeway; `None`: never.
    pub(super) expires_at_ms: Option<u64>,
}

/// A claim by its name, or by a JSON pointer (RFC 6901) where the name begins with a slash.
pub(super) fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let Some(path) = name.strip_prefix('/') else { return claims.get(name) };
    let (first, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// Holds the claims against the settings and the client.
///
/// # Errors
/// What the client is refused for.
pub(super) fn check(claims: &Map<String, Value>, settings: &JwtSettings, request: &Request) -> Result<Accepted, Refusal> {
    let expires_at_ms = check_dates(claims, settings, request.wall_ms)?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let is_one_of = |text: Option<&str>, list: &[String]| text.is_some_and(|text| list.iter().any(|one| one == text));
    if !settings.issuers.is_empty() && !is_one_of(text("iss"), &settings.issuers) {
        return Err(ISSUER);
    }
    let audience = match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().any(|one| is_one_of(one.as_str(), &settings.audiences)),
        _ => is_one_of(text("aud"), &settings.audiences),
    };
    if !settings.audiences.is_empty() && !audience {
        return Err(AUDIENCE);
    }
    let names = Substitutes { client_id: &request.client_id, user_name: request.user_name.as_deref() };
    for verify in &settings.verify {
        let found = find(claims, &verify.claim).and_then(Value::as_str);
        if found.is_none() || found != verify.value.text(names).as_deref() {
            return Err(CLIENT);
        }
    }
    Ok(Accepted { user_name: user_name(claims, settings, request)?, expires_at_ms })
}

/// When the token expires.
fn check_dates(claims: &Map<String, Value>, settings: &JwtSettings, now_ms: u64) -> Result<Option<u64>, Refusal> {
    let leeway_ms = u64::from(settings.leeway_s) * 1000;
    let date = |name: &str| claims.get(name).map(|value| date_ms(value).ok_or(DATES)).transpose();
    let expires_at_ms = date("exp")?.map(|ms| ms.saturating_add(leeway_ms));
    match expires_at_ms {
        None if settings.expiry_required => return Err(NO_EXPIRY),
        Some(at_ms) if at_ms <= now_ms => return Err(EXPIRED),
        _ => {}
    }
    // One issued in the future is as little in force as one that says so.
    for name in ["nbf", "iat"] {
        if date(name)?.is_some_and(|ms| ms > now_ms.saturating_add(leeway_ms)) {
            return Err(NOT_YET);
        }
    }
    Ok(expires_at_ms)
}

/// A NumericDate: seconds since the epoch, with a fraction or not, as milliseconds. What is out of range is the end of the range.
fn date_ms(value: &Value) -> Option<u64> {
    if let Some(seconds) = value.as_u64() {
        return Some(seconds.saturating_mul(1000));
    }
    let seconds = value.as_f64()?;
    let longest = if seconds < 0.0 { Duration::ZERO } else { Duration::MAX };
    let since = Duration::try_from_secs_f64(seconds).unwrap_or(longest);
    Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The name in the token outweighs the one that was sent. That one counts where the token has none, and a claim was to be equal to it.
fn user_name(claims: &Map<String, Value>, settings: &JwtSettings, request: &Request) -> Result<Option<ByteString>, Refusal> {
    match find(claims, &settings.user_name_claim) {
        Some(Value::String(name)) if !name.is_empty() && !has_discouraged(name) => Ok(Some(name.as_str().into())),
        Some(_) => Err(USER_NAME),
        None if settings.verify.iter().any(|verify| verify.value.is_user_name()) => Ok(request.user_name.clone()),
        None => Ok(None),
    }
}
